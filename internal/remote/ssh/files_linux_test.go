package ssh

import (
	"syscall"
	"testing"
)

// TestCheckOwner_ProtectsOtherUsersFiles: root reads for another person only what they could read; a person
// is kept from what they cannot read by the system.
func TestCheckOwner_ProtectsOtherUsersFiles(t *testing.T) {
	const person = 1000
	for name, tc := range map[string]struct {
		owner  uint32
		mode   uint32
		reader int
		want   string
	}{
		"the person's":               {person, 0o600, person, ""},
		"the person's, read by root": {person, 0o600, 0, ""},
		"root's, for all":            {0, 0o644, 0, ""},
		"root's, for a group":        {0, 0o640, person, ""},
		"root's secret, by root":     {0, 0o640, 0, "it belongs to user 0 instead of user 1000"},
		"another's":                  {1001, 0o644, person, "it belongs to user 1001 instead of user 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			st := syscall.Stat_t{Uid: tc.owner, Mode: tc.mode}
			got := ""
			if err := checkOwner(&st, person, tc.reader); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("the error is %q, want %q", got, tc.want)
			}
		})
	}
}
