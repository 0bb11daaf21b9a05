"""What every test may use: the lab and the built kernels, for the whole session."""

pytest_plugins = ["tests.lab_fixture", "tests.kernel_programs"]
