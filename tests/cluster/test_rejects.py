"""The checker finds what it is there for: servers built without the comparisons that fence a commit (src/base/mutant.h) do not pass."""
import os
import subprocess
import sys
import unittest

import rig

FULL = os.environ.get("BERTH_TEST_FULL") == "1"
HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(rig.berthtest.ROOT, "build-mutants")


@unittest.skipUnless(FULL, "needs a build of its own (build-mutants): part of ./check full")
class Rejects(rig.Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(BUILD, "build.ninja")):
            subprocess.run(["meson", "setup", BUILD, rig.berthtest.ROOT, "-Dmutant=any"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["ninja", "-C", BUILD, "berth"], check=True, stdout=subprocess.DEVNULL)

    def outcome(self, mutant, test):
        env = {**os.environ, "MUTANT": mutant}
        env.pop("BERTH_TEST_FULL")
        p = subprocess.run([sys.executable, os.path.join(HERE, "run.py"), "--berth", os.path.join(BUILD, "berth"), test], env=env, capture_output=True, text=True, timeout=600)
        return p.returncode, p.stdout

    def rejected(self, mutant, test, how="no order explains the answers|an older version after a newer one|was told with version"):
        code, out = self.outcome(mutant, test)
        self.assertNotEqual(code, 0, out[-3000:])
        self.assertRegex(out, how, out[-3000:])

    # R: C33
    def test_a_build_that_does_not_compare_who_leads_is_rejected(self):
        self.assertEqual(self.outcome("none", "in_its_hands")[0], 0)
        self.rejected("etcd_leader_not_compared", "in_its_hands")

    # R: C33
    def test_a_build_that_compares_nothing_is_rejected(self):
        self.rejected("etcd_commit_not_fenced", "the_history_is_that_of_one_server")

    # R: C33 C34. Line E1.
    def test_a_build_that_asks_nobody_whether_it_still_leads_is_rejected(self):
        self.assertEqual(self.outcome("none", "alive_and_blind")[0], 0)
        self.rejected("lead_not_proved", "alive_and_blind", "two holders|stale answers")

    # R: C34. Line E1.
    def test_a_build_that_renews_without_a_proof_is_rejected(self):
        self.rejected("lead_by_lease_alone", "nothing_else_is_heard", "two holders")

    # R: C33. Line E1.
    def test_a_build_that_answers_without_a_proof_is_rejected(self):
        self.rejected("answer_not_proved", "alive_and_blind", "stale answers")
