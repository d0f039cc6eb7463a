#!/usr/bin/python3
"""run.py: berth of today with the berth before it (A10): agents, servers, replicas and command lines of both versions together. Options are those of tests/e2e/run.py.

The version before is built from the history of this repository into build-versions/, once. Without that history (a shallow clone) the tests are skipped, with a sentence.
"""
import importlib.util
import os
import sys

import before

HERE = os.path.dirname(os.path.abspath(__file__))
E2E = os.path.join(os.path.dirname(HERE), "e2e")
sys.path.insert(1, E2E)
spec = importlib.util.spec_from_file_location("e2e_run", os.path.join(E2E, "run.py"))
e2e_run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(e2e_run)
if "--one" not in sys.argv and "-l" not in sys.argv:
    before.build()
e2e_run.main(os.path.abspath(__file__))
