"""Measurements. Nothing here is a test: speed is reported, never asserted.

``python -m benchmarks --help`` says how to run them. :mod:`benchmarks.harness` starts and ends processes,
:mod:`benchmarks.scenario` says what a scenario is and runs it, :mod:`benchmarks.report` makes tables and figures;
:mod:`benchmarks.peers` has the libraries, :mod:`benchmarks.scenarios` what is done with them, and
:mod:`benchmarks.wan` an emulated network.
"""
