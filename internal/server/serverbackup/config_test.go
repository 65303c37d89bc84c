package serverbackup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/diag"
)

func TestParseConfig_ReportsPlaceOfEachProblem(t *testing.T) {
	for _, tc := range []struct {
		name, reason, text string
		want               []string
	}{
		{"empty", "the file needs a field", "", []string{"0:0 empty-file"}},
		{"defaults", "each field is optional", "keep: 3\n", nil},
		{"syntax", "YAML allows no tabs", "a:\n\tb: c\n", []string{"2:2 yaml-syntax"}},
		{"unknown field", "a misspelt field is not ignored", "intervall: 6h\n", []string{"1:1 unknown-field"}},
		{"short interval", "each backup costs time", "interval: 5s\n", []string{"1:11 invalid-duration"}},
		{"wrong type", "a duration has a unit", "interval: [6]\n", []string{"1:11 wrong-type"}},
		{"keep", "one backup must be kept", "interval: 6h\nkeep: 0\n", []string{"2:7 invalid-value"}},
		{"directory", "the working directory of the server is unknown", "directory: backups\n", []string{"1:12 invalid-value"}},
		{"recipient", "it is not a key", "recipients: [age1]\n", []string{"1:14 invalid-recipient"}},
		{"copies", "copies must be encrypted, and need a target", "copies:\n- name: nas\n", []string{"1:1 missing-field", "2:3 missing-field"}},
		{"two documents", "only one is read", "keep: 3\n---\nkeep: 4\n", []string{"2:1 invalid-value"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseConfig("backup.yaml", []byte(tc.text))
			var list diag.List
			if err != nil && !errors.As(err, &list) {
				t.Fatal(err)
			}
			var got []string
			for _, d := range list {
				got = append(got, fmt.Sprintf("%d:%d %s", d.Line, d.Column, d.ID))
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", tc.reason, d, err)
			}
		})
	}
}

func TestLoadConfig_ReturnsScheduleWithTargets(t *testing.T) {
	id := newIdentity(t)
	machine := copiestest.ListenSFTP(t)
	dir := t.TempDir()
	text := fmt.Sprintf(`interval: 30m
keep: 5
directory: %s
recipients: [%s]
copies:
- name: nas
  keep: 3
  ssh:
    address: %s
    port: %d
    user: %s
    directory: %s
    hostKey: %q
    privateKeyFrom: {file: nas.key}
`, dir, id.Recipient(), machine.To.Address, machine.To.Port, machine.To.User, machine.To.Directory, machine.To.HostKey)
	file := filepath.Join(dir, "backup.yaml")
	for name, data := range map[string][]byte{"backup.yaml": []byte(text), "nas.key": machine.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Schedule()
	if err != nil || s.Interval != 30*time.Minute || s.Keep != 5 || s.Directory != dir || len(s.Recipients) != 1 || len(s.Targets) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	to, err := c.Target("nas")
	if err != nil || to.Keep != 3 {
		t.Fatalf("%+v, %v", to, err)
	}
	target, err := to.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if _, err := target.List(t.Context(), ""); err != nil {
		t.Error(err)
	}
	_, err = c.Target("other")
	wantID(t, err, idNoTarget)
	if _, err := LoadConfig(filepath.Join(dir, "missing.yaml")); err == nil {
		t.Error("a missing file is a configuration")
	}
}
