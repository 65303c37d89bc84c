package backup

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
)

func TestInspect_RefusesTruncatedSets(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		to   []age.Recipient
		step int // between the tested lengths
	}{"plain": {nil, 97}, "encrypted": {[]age.Recipient{id.Recipient()}, 997}} {
		t.Run(name, func(t *testing.T) {
			file, want, _ := writeTestSet(t, tc.to...)
			set, err := Inspect(file)
			if err != nil || (set != nil) != (tc.to == nil) || set != nil && set.Cluster != want.Cluster {
				t.Fatalf("complete: %+v, %v", set, err)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			bad := filepath.Join(t.TempDir(), "bad.tar")
			for at := len(raw) - 1; at >= 0; at -= tc.step {
				if err := os.WriteFile(bad, raw[:at], 0o600); err != nil {
					t.Fatal(err)
				}
				possible := tc.to != nil && (len(raw)-at)%block == 0
				if _, err := Inspect(bad); err == nil && !possible {
					t.Errorf("a set of %d bytes is complete with %d", len(raw), at)
				}
			}
			if err := os.WriteFile(bad, append(bytes.Clone(raw), make([]byte, 100)...), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Inspect(bad); err == nil {
				t.Error("a set with more data is complete")
			}
		})
	}
}

func TestInspect_RefusesSetWithOtherFiles(t *testing.T) {
	file, _, _ := writeTestSet(t)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(raw, []byte(SnapshotName+"\x00"))
	copy(raw[at:], "snapshot.dx")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := Inspect(file)
	wantReason(t, err, Damaged)
	if set == nil || !strings.Contains(err.Error(), SnapshotName) {
		t.Errorf("%+v, %v", set, err)
	}
}
