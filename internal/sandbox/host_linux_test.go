package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// TestOtherClaim_FindsCopies: the directory of a sandbox can be copied with its record, but not its machines.
func TestOtherClaim_FindsCopies(t *testing.T) {
	own, copied, link := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "link")
	requireNoError(t, os.Symlink(own, link))
	for _, tc := range []struct{ reason, id, dir, want string }{
		{"the sandbox itself", "c61203", own, ""},
		{"the sandbox by another path", "c61203", link, ""},
		{"a copy", "c61203", copied, own},
		{"a sandbox that was moved", "c61204", copied, ""},
		{"a free range", "c61205", copied, ""},
	} {
		host := &hostState{Claims: map[string]string{"c61203": own, "c61204": filepath.Join(own, "moved")}}
		if got := host.otherClaim(tc.id, tc.dir); got != tc.want {
			t.Errorf("%s: the range belongs to %q, want %q", tc.reason, got, tc.want)
		}
		free := host.Claims[tc.id] == "" || host.Claims[tc.id] == tc.dir
		if err := host.claimRange(tc.id, tc.dir); (err == nil) != free {
			t.Errorf("%s: claiming the range: %v", tc.reason, err)
		}
	}
}
