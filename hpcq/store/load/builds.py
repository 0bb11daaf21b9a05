"""build.json into `build`, and which build produced a result.

Two programs are the same build if compiler, flags, MPI, modules, sources and binary agree. Build time and folder do not
matter.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from typing import Any

from hpcq.run_folder.lines import Line, mapping, utc_or_none
from hpcq.store.load.row_keys import RowKeys, canonical


class Builds:
    """The builds of one cluster in one run."""

    def __init__(self, database: sqlite3.Connection, names: RowKeys, cluster_id: int, record: Mapping[str, Any]) -> None:
        self.toolchain = str(record.get("toolchain") or "default")
        #: By toolchain (empty: the cluster's own) and program.
        self._by_program: dict[tuple[str, str], tuple[int, str]] = {}
        self._add("", record, database, names, cluster_id)
        for name, one in mapping(record.get("toolchains")).items():
            self._add(name, mapping(one), database, names, cluster_id)

    def _add(
        self, toolchain: str, record: Mapping[str, Any], database: sqlite3.Connection, names: RowKeys, cluster_id: int
    ) -> None:
        for program, built in mapping(record.get("programs")).items():
            columns = _columns(program, mapping(built), record, toolchain or self.toolchain)
            digest = hashlib.sha256(canonical(columns).encode()).digest()
            found = database.execute(
                "SELECT build_id FROM build WHERE cluster_id = ? AND sha256 = ?", (cluster_id, digest)
            ).fetchone()
            built_utc = utc_or_none(record.get("built_utc"))
            row = {"cluster_id": cluster_id, "sha256": digest, **columns, "built_utc": built_utc}
            build_id = found[0] if found else names.insert("build", row)
            self._by_program[toolchain, program] = (build_id, columns["source_build_id"])

    def of_line(self, line: Line, toolchain: str = "") -> int | None:
        """The build that printed a line. A line from sources other than the recorded ones gets None and a warning."""
        program = line.content.get("program")
        if not isinstance(program, str) or (toolchain, program) not in self._by_program:
            return None
        build_id, source_build_id = self._by_program[toolchain, program]
        printed = str(line.content.get("build_id", ""))
        if printed != source_build_id:
            message = f"{program}: the line says build {printed}, build.json says {source_build_id}"
            line.warnings.append(("build_mismatch", message))
            return None
        return build_id


def _columns(program: str, built: Mapping[str, Any], record: Mapping[str, Any], toolchain: str) -> dict[str, str]:
    uses_mpi = program == "hpcq-mpi"
    modules = record.get("modules")
    return {
        "toolchain": toolchain,
        "program": program,
        "version": str(built.get("version") or ""),
        "source_build_id": str(built.get("build_id") or ""),
        "compiler": str(record.get("compiler_version") or record.get("cc") or ""),
        "flags": str(record.get("flags") or ""),
        "mpi": str(record.get("mpi_version") or "") if uses_mpi else "",
        "modules": " ".join(str(one) for one in modules) if isinstance(modules, list) else "",
        "binary_sha256": str(built.get("sha256") or ""),
    }
