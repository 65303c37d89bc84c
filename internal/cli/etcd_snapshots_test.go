package cli

import (
	"strings"
	"testing"
)

// A list shows which set is damaged, and the reason on stderr, so that scripts can read the
// list.
func TestSnapshots_ShowsWhySetIsDamaged(t *testing.T) {
	s := newTestTerminal(t, "")
	f := &fake{Clusters: []string{"prod"}, Phase: "Ready"}
	if got := s.run(t, f, "etcd", "snapshots", "prod", "--no-headers"); got != exitDone {
		t.Fatalf("exit code %d\n%s", got, s.err.String())
	}
	lines := strings.Split(strings.TrimSpace(s.out.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[3], "DAMAGED") || strings.Contains(lines[1], "DAMAGED") {
		t.Errorf("the list:\n%s", s.out.String())
	}
	if !strings.Contains(s.err.String(), "incomplete before snapshot.db [backup-damaged]") {
		t.Errorf("the reason is missing:\n%s", s.err.String())
	}
}
