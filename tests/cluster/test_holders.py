"""The checker of starts and stops: logs that are right, and logs that are wrong."""
import unittest

import holders


def line(at, what, node, workload, token):
    return f'ts=2026-01-01T00:00:{at:06.3f}Z level=info msg="unit {what}" node={node} workload={workload} token={token} pid=1 exit_code=-1'


def check(*lines, exclusive=lambda w: True):
    return holders.violations(holders.copies(line(*one) for one in lines), exclusive)


class Holders(unittest.TestCase):
    # R: C34
    def test_one_after_the_other_is_right(self):
        self.assertEqual(check((1, "started", "n1", "w", 4), (2, "stopped", "n1", "w", 4), (3, "started", "n2", "w", 9)), [])
        self.assertEqual(check((1, "started", "n1", "w", 4), (1, "started", "n1", "v", 5), (2, "exited", "n1", "w", 4), (3, "started", "n1", "w", 9)), [])
        self.assertEqual(check((1, "started", "n1", "w", 4), (2, "adopted", "n1", "w", 4), (3, "stopped", "n1", "w", 4)), [])

    def test_two_at_a_time_are_wrong(self):
        wrong = ((1, "started", "n1", "w", 4), (3, "started", "n2", "w", 9), (4, "stopped", "n1", "w", 4))
        self.assertIn("(3) two holders", check(*wrong)[0])
        self.assertEqual(check(*wrong, exclusive=lambda w: False), [])
        self.assertIn("(2)", check((1, "started", "n1", "w", 4), (3, "started", "n1", "w", 9), exclusive=lambda w: False)[0])

    def test_a_token_is_started_once(self):
        self.assertIn("(1)", check((1, "started", "n1", "w", 4), (2, "stopped", "n1", "w", 4), (3, "started", "n2", "w", 4))[0])


if __name__ == "__main__":
    unittest.main()
