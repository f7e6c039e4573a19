"""One file per question about speed; each prints one JSON line. Numbers, machine and date: README.md."""
