package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/server/datadir"
	"slipway.dev/slipway/internal/server/serverbackup"
)

// takeBackup backs up the running server of the tests to a file in a new directory.
func takeBackup(t *testing.T) serverbackup.Received {
	t.Helper()
	got := runCommand(t, "backup", "--out", t.TempDir(), "-o", "json")
	var set serverbackup.Received
	if err := json.Unmarshal([]byte(got.out), &set); err != nil || got.code != exitDone {
		t.Fatalf("%v in %+v", err, got)
	}
	return set
}

func TestBackup_IsListedAndRestored(t *testing.T) {
	set := takeBackup(t)
	if info, err := os.Stat(set.File); err != nil || info.Mode() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	var list backupList
	got := runCommand(t, "list-backups", "--directory", filepath.Dir(set.File), "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || len(list.Backups) != 1 ||
		list.Backups[0].State != serverbackup.Verified || list.PublicKey != set.PublicKey || list.Backups[0].Revision == 0 {
		t.Fatalf("%v, %+v in %+v", err, list, got)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if got := runCommand(t, "restore", set.File, "--data-dir", dir, "--signed-by", set.PublicKey); got.code != exitDone {
		t.Fatalf("got %+v", got)
	}
	want, err := datadir.ReadInfo(serverDir)
	if err != nil {
		t.Fatal(err)
	}
	d, err := datadir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, held, err := d.Hold()
	if err != nil || !held || d.ServerID() != want.ServerID || d.IsFresh() {
		t.Errorf("held %t, %v, server %s instead of %s", held, err, d.ServerID(), want.ServerID)
	}
	if _, err := os.Stat(d.Path("etcd", "member", "snap", "db")); err != nil {
		t.Errorf("the database was not restored: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(t, "restore", set.File, "--data-dir", dir, "--replace", "--keys-only"); got.code != exitDone ||
		!strings.Contains(got.out, dir+".before-") {
		t.Errorf("got %+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd", "member")); err == nil {
		t.Error("--keys-only has restored a database")
	}
}

func TestBackupCommands_RefuseBadInput(t *testing.T) {
	set := takeBackup(t)
	absent := filepath.Join(t.TempDir(), "absent")
	config := filepath.Join(t.TempDir(), "backup.yaml")
	if err := os.WriteFile(config, []byte("interval: 1h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, reason string
		args         []string
		id           string
	}{
		{"existing file", "backups are never overwritten", []string{"backup", "--out", set.File}, "backup-exists"},
		{"bad recipient", "it is not a key", []string{"backup", "--recipient", "age1"}, "server-backup-request"},
		{"no server", "nothing runs there", []string{"backup", "--data-dir", absent}, "data-dir-missing"},
		{"target without file", "the file describes it", []string{"backup", "--to", "nas"}, ""},
		{
			"unknown target", "the file has no targets",
			[]string{"backup", "--to", "nas", "--backup-config", config},
			"server-backup-target-unknown",
		},
		{"running server", "its data would be lost", []string{"restore", set.File, "--replace"}, "data-dir-in-use"},
		{"no key", "anyone can write the file", []string{"restore", set.File, "--data-dir", absent}, "server-backup-unverified"},
		{"bad key", "it is not a key", []string{"restore", set.File, "--data-dir", absent, "--signed-by", "a"}, "invalid-value"},
		{
			"existing data", "--replace is missing",
			[]string{"restore", set.File, "--data-dir", filepath.Dir(config), "--signed-by", set.PublicKey},
			"data-dir-foreign",
		},
		{"not a set", "it is another file", []string{"restore", config, "--data-dir", absent}, "backup-unknown"},
		{"from without file", "the file describes the target", []string{"restore", "a", "--from", "nas", "--data-dir", absent}, idFlag},
		{"format", "text or json", []string{"list-backups", "-o", "yaml"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := runCommand(t, tc.args...)
			if got.code != exitRefused || !strings.Contains(got.err, tc.id) || got.out != "" {
				t.Errorf("%s: got %+v, want the id %q", tc.reason, got, tc.id)
			}
		})
	}
	if _, err := os.Stat(absent); err == nil {
		t.Error("a refused restore has created a directory")
	}
}

// TestBackupEndpoint_RefusesOthers asks for a backup without the rights of an administrator.
func TestBackupEndpoint_RefusesOthers(t *testing.T) {
	requireRefused(t, pathBackup)
}
