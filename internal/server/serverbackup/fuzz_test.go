package serverbackup

import (
	"bytes"
	"io"
	"testing"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
)

// FuzzReadSet reads sets from an attacker: reading ends without a panic, gives only allowed
// names, never more bytes than the set has, and reports only the server's sets as signed.
func FuzzReadSet(f *testing.F) {
	m, _ := newMaker(f)
	m.o.Snapshots = snapshots{content: []byte("etcd")}
	id := newIdentity(f)
	f.Add([]byte{})
	f.Add([]byte("server.json"))
	_, plain := takeSet(f, m)
	_, sealed := takeSet(f, m, id.Recipient())
	for _, raw := range [][]byte{plain, sealed} {
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		total := 0
		h, err := readSet(bytes.NewReader(raw), int64(len(raw)), []age.Identity{id}, acceptAll, func(file backup.File) (io.WriteCloser, error) {
			if file.Name != snapshotName && !keyFile.MatchString(file.Name) {
				t.Errorf("the set has a file %q", file.Name)
			}
			return countedFile{&total}, nil
		})
		if total > len(raw) {
			t.Errorf("%d bytes came out of a set of %d", total, len(raw))
		}
		if err == nil && m.PublicKey().IsSignerOf(h.Signature) && h.ServerID != testID {
			t.Errorf("a set of server %q is verified", h.ServerID)
		}
	})
}

// countedFile counts written bytes.
type countedFile struct{ total *int }

func (c countedFile) Write(p []byte) (int, error) {
	*c.total += len(p)
	return len(p), nil
}

func (countedFile) Close() error { return nil }

// FuzzParseConfig reads configurations: an accepted one has a schedule.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("interval: 6h\nkeep: 3\n"))
	f.Add([]byte("copies:\n- name: nas\n  ssh: {address: a, user: b, directory: /c}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("backup.yaml", data)
		if err != nil {
			return
		}
		if s, err := c.Schedule(); err != nil || s.Interval < minInterval || s.Keep < 1 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
