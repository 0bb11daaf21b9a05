"""hpcq for Spack 1.0 or newer: `spack repo create site`, then this file as packages/hpcq/package.py there."""

from spack.package import *  # noqa: F403 - Spack's own way
from spack_repo.builtin.build_systems.python import PythonPackage


class Hpcq(PythonPackage):
    """Network test campaigns on HPC clusters through their batch systems."""

    # Sites install from a folder with the sources: spack develop --path /sources/hpcq hpcq@1.0.0
    version("1.0.0")  # noqa: F405

    depends_on("python@3.11:", type=("build", "run"))  # noqa: F405
    depends_on("py-hatchling@1.27:1", type="build")  # noqa: F405
    depends_on("py-click@8.2:8", type=("build", "run"))  # noqa: F405
    depends_on("py-jinja2@3.1:3", type=("build", "run"))  # noqa: F405
    depends_on("py-numpy@1.26:2", type=("build", "run"))  # noqa: F405
    depends_on("py-pydantic@2.10:2", type=("build", "run"))  # noqa: F405
    depends_on("py-rich@13.9:15", type=("build", "run"))  # noqa: F405
    depends_on("py-ruamel-yaml@0.18.10:0.19", type=("build", "run"))  # noqa: F405
    depends_on("snakemake@9.3:9", type=("build", "run"))  # noqa: F405
