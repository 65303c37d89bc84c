package serverbackup

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/backup"
)

func acceptAll(*Header) error { return nil }

// readAll reads a set from memory.
func readAll(raw []byte, ids []age.Identity) (*Header, map[string]string, error) {
	files := map[string]string{}
	h, err := readSet(bytes.NewReader(raw), int64(len(raw)), ids, acceptAll, func(f backup.File) (io.WriteCloser, error) {
		return &memoryFile{name: f.Name, files: files}, nil
	})
	return h, files, err
}

type memoryFile struct {
	bytes.Buffer
	name  string
	files map[string]string
}

func (f *memoryFile) Close() error {
	f.files[f.name] = f.String()
	return nil
}

func TestTake_WritesSetThatReaderReturns(t *testing.T) {
	id, other := newIdentity(t), newIdentity(t)
	for _, tc := range []struct {
		name, reason string
		to           []age.Recipient
		ids          []age.Identity
		want         backup.Reason
	}{
		{"plain", "a set without recipients can be read", nil, nil, ""},
		{"encrypted", "a recipient reads the set", []age.Recipient{id.Recipient()}, []age.Identity{other, id}, ""},
		{"no identity", "the set is encrypted", []age.Recipient{id.Recipient()}, nil, backup.Encrypted},
		{"another identity", "the set is encrypted for another key", []age.Recipient{id.Recipient()}, []age.Identity{other}, backup.Encrypted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, _ := newMaker(t)
			_, raw := takeSet(t, m, tc.to...)
			if bytes.Contains(raw, []byte(canary)) != (len(tc.to) == 0) {
				t.Error("the key can be read in the set, or is missing")
			}
			h, files, err := readAll(raw, tc.ids)
			if tc.want != "" {
				wantReason(t, err, tc.want)
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if h.ServerID != testID || h.Program != "v0.9.0" || h.Kubernetes != "v1.37.1" || h.KeysOnly() || !h.Taken.Equal(testTime()) {
				t.Errorf("header %+v", h)
			}
			if !m.PublicKey().IsSignerOf(h.Signature) {
				t.Error("the set is not signed by the key of the server")
			}
			names := []string{"etcd/snapshot.db", "keys/backup-signing.key", "keys/encryption.yaml", "keys/sa.key", "pki/ca.crt", "pki/ca.key"}
			var got []string
			for name := range files {
				got = append(got, name)
			}
			slices.Sort(got)
			if d := cmp.Diff(names, got); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
			if files["keys/sa.key"] != canary || files["etcd/snapshot.db"] != string(database()) {
				t.Error("the content of a file differs")
			}
		})
	}
}

func TestTake_WritesKeysOnlyForExternalEtcd(t *testing.T) {
	m, _ := newMaker(t)
	m.o.Snapshots = nil
	_, raw := takeSet(t, m)
	h, files, err := readAll(raw, nil)
	if err != nil || !h.KeysOnly() || files[snapshotName] != "" {
		t.Errorf("%+v, %v", h, err)
	}
}

// boundaries returns the offsets in a tar at which a member's header or content begins.
func boundaries(t *testing.T, raw []byte) (out []int) {
	t.Helper()
	from := bytes.NewReader(raw)
	r := tar.NewReader(from)
	for {
		out = append(out, len(raw)-from.Len())
		_, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, len(raw)-from.Len())
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadSet_RefusesTruncationAtEachMember(t *testing.T) {
	id := newIdentity(t)
	m, _ := newMaker(t)
	_, plain := takeSet(t, m)
	_, sealed := takeSet(t, m, id.Recipient())
	cuts := boundaries(t, plain)
	for _, at := range slices.Clone(cuts) {
		cuts = append(cuts, at+1, at+100, at-1)
	}
	for _, at := range append(cuts, len(plain)-1, len(plain)-512, len(plain)-1024) {
		if at < 0 || at >= len(plain) {
			continue
		}
		if _, _, err := readAll(plain[:at], nil); err == nil {
			t.Errorf("the first %d of %d bytes are a set", at, len(plain))
		}
		if _, _, err := readAll(sealed[:at], []age.Identity{id}); err == nil {
			t.Errorf("the first %d of %d encrypted bytes are a set", at, len(sealed))
		}
	}
}

// rewrite returns a set with changed members. The signature is kept, as an attacker without
// the key would.
func rewrite(t *testing.T, raw []byte, change func(name string, data []byte) (string, []byte)) []byte {
	t.Helper()
	r, out := tar.NewReader(bytes.NewReader(raw)), &bytes.Buffer{}
	w := tar.NewWriter(out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		h.Name, data = change(h.Name, data)
		h.Size = int64(len(data))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadSet_RefusesAlteredByteInEachPart(t *testing.T) {
	m, _ := newMaker(t)
	_, raw := takeSet(t, m)
	var names []string
	rewrite(t, raw, func(name string, data []byte) (string, []byte) {
		names = append(names, name)
		return name, data
	})
	if len(names) != 8 { // header, signature, snapshot, and five files
		t.Fatalf("the set has members %v", names)
	}
	for _, altered := range names {
		t.Run(altered, func(t *testing.T) {
			bad := rewrite(t, raw, func(name string, data []byte) (string, []byte) {
				if name == altered {
					data[len(data)/2] ^= 1
				}
				return name, data
			})
			h, _, err := readAll(bad, nil)
			// The header can still be valid JSON: then the signature does not match.
			if err == nil && m.PublicKey().IsSignerOf(h.Signature) {
				t.Error("the altered set is verified")
			}
		})
	}
}

// forge returns an unsigned set with a changed header, whose checksums match.
func forge(t *testing.T, change func(*Header)) []byte {
	t.Helper()
	h := &Header{Kind: kind, Format: format, ServerID: testID, Taken: testTime(), Kubernetes: "v1.37.1"}
	member := backup.NewMember("keys/sa.key", []byte("key"))
	h.Files = []backup.File{member.File}
	change(h)
	member.Name = h.Files[0].Name
	raw, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := setForm().WriteSet(&out, raw, h.Taken, []backup.Member{member}, backup.Keys{}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadSet_RefusesHostileHeaders(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		change       func(*Header)
		want         backup.Reason
	}{
		{"valid", "the forged set itself can be read", func(*Header) {}, ""},
		{"parent", "a name must not leave the data directory", func(h *Header) { h.Files[0].Name = "keys/../../etc/passwd" }, backup.Damaged},
		{"absolute", "a name must not be absolute", func(h *Header) { h.Files[0].Name = "/etc/passwd" }, backup.Damaged},
		{"other directory", "only pki and keys are restored", func(h *Header) { h.Files[0].Name = "audit/log" }, backup.Damaged},
		{"root", "server.json is not from the set", func(h *Header) { h.Files[0].Name = "server.json" }, backup.Damaged},
		{"hidden", "names with a dot are temporary", func(h *Header) { h.Files[0].Name = "keys/.x" }, backup.Damaged},
		{"deeper", "keys has no directories", func(h *Header) { h.Files[0].Name = "keys/a/b" }, backup.Damaged},
		{"line break", "names are printed", func(h *Header) { h.Files[0].Name = "keys/a\nb" }, backup.Damaged},
		{"huge file", "a file of pki is read into memory", func(h *Header) { h.Files[0].Bytes = maxFile + 1 }, backup.Damaged},
		{"negative", "sizes are not negative", func(h *Header) { h.Files[0].Bytes = -1 }, backup.Damaged},
		{"twice", "a file has one content", func(h *Header) { h.Files = append(h.Files, h.Files[0]) }, backup.Damaged},
		{"many", "the number of files is limited", func(h *Header) { h.Files = slices.Repeat(h.Files, maxFiles+2) }, backup.Damaged},
		{"huge snapshot", "it has more bytes than the file", func(h *Header) {
			h.Snapshot = &SnapshotInfo{Bytes: 1 << 60, SHA256: "a"}
			h.Files = append(h.Files, backup.File{Name: snapshotName, Bytes: 1 << 60, SHA256: "a"})
		}, backup.Damaged},
		{"snapshot twice", "the header describes it in two ways", func(h *Header) {
			h.Snapshot = &SnapshotInfo{Bytes: 10, SHA256: "a"}
			h.Files = append(h.Files, backup.File{Name: snapshotName, Bytes: 9, SHA256: "a"})
		}, backup.Damaged},
		{"no snapshot", "the header announces one", func(h *Header) { h.Snapshot = &SnapshotInfo{} }, backup.Damaged},
		{"newer format", "its content is unknown", func(h *Header) { h.Format = 2 }, backup.Unknown},
		{"cluster", "the set is of another kind", func(h *Header) { h.Kind = "cluster" }, backup.Unknown},
		{"signed", "the header announces a signature", func(h *Header) { h.Signed = true }, backup.Damaged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := readAll(forge(t, tc.change), nil)
			if tc.want == "" && err == nil {
				return
			}
			if wantReason(t, err, tc.want); t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

func TestReadSet_RefusesRenamedMember(t *testing.T) {
	m, _ := newMaker(t)
	_, raw := takeSet(t, m)
	bad := rewrite(t, raw, func(name string, data []byte) (string, []byte) {
		return strings.Replace(name, "pki/ca.key", "../../x", 1), data
	})
	_, _, err := readAll(bad, nil)
	wantReason(t, err, backup.Damaged)
}

func TestReadHeader_NamesFileOfRefusedSet(t *testing.T) {
	file := writeSetFile(t, []byte("not a set"))
	_, err := ReadHeader(file, nil)
	wantID(t, err, string(backup.Unknown))
	if !strings.Contains(err.Error(), file) {
		t.Errorf("the error does not name the file: %v", err)
	}
	if _, err := ReadHeader(filepath.Dir(file), nil); err == nil {
		t.Error("a directory is a set")
	}
}

func TestFileName_IsParsedAgain(t *testing.T) {
	m, _ := newMaker(t)
	h, _, err := readAll(func() []byte { _, raw := takeSet(t, m); return raw }(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, encrypted := range []bool{false, true} {
		n, sealed, ok := parseFileName(fileName(nameFor(h, m.o.Signer), encrypted))
		if !ok || sealed != encrypted || !isOwn(n, testID) || isOwn(n, "other") || !n.IsVerified(m.o.Signer) {
			t.Errorf("name %+v, encrypted %t, %t", n, sealed, ok)
		}
	}
}
