"""The signs that stand beside words, so that nothing is told by colour alone."""

OF_WORD = {"trustworthy": "✓", "walk back": "✗", "undecided": "?", "not measured": "○", "not judged": "–"}
OF_OUTCOME = {
    "issue": "✗",
    "tip": "ℹ",
    "passed": "✓",
    "undecided": "?",
    "not applicable": "–",
    "skipped": "?",
    "muted": "◌",
}
OF_CONCLUSION = {"accepts": "✓", "walks back": "✗", "open": "?", "not applicable": "–", "muted": "◌"}
