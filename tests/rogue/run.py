#!/usr/bin/python3
"""run.py: what one compromised node can do (A13): a rogue agent with a real certificate against a real server, beside an honest agent whose unit must not notice. Options are
those of tests/e2e/run.py.
"""
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
E2E = os.path.join(os.path.dirname(HERE), "e2e")
sys.path.insert(1, E2E)
spec = importlib.util.spec_from_file_location("e2e_run", os.path.join(E2E, "run.py"))
e2e_run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(e2e_run)
e2e_run.main(os.path.abspath(__file__))
