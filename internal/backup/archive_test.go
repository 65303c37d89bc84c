package backup

import (
	"bytes"
	"testing"
	"time"

	"filippo.io/age"
)

// writeArchive returns a set of another form than the form of clusters.
func writeArchive(t *testing.T, by Keys) (form Form, raw []byte, files []File) {
	t.Helper()
	form = Form{Header: "head.json", Signature: "head.sig"}
	members := []Member{NewMember("a/one", bytes.Repeat([]byte("one"), 300)), NewMember("a/two", make([]byte, 1500))}
	for _, m := range members {
		files = append(files, m.File)
	}
	var out bytes.Buffer
	if _, err := form.WriteSet(&out, []byte("{}"), time.Unix(1_000_000, 0), members, by); err != nil {
		t.Fatal(err)
	}
	return form, out.Bytes(), files
}

// readArchive reads such a set to its end.
func readArchive(form Form, raw []byte, files []File, ids []age.Identity) error {
	r, err := form.NewReader(bytes.NewReader(raw), ids)
	if err != nil {
		return err
	}
	head, err := r.ReadHeader()
	if err != nil {
		return err
	}
	if _, err := r.ReadSignature(head); err != nil {
		return err
	}
	for _, f := range files {
		if err := r.ReadMember(f, &bytes.Buffer{}); err != nil {
			return err
		}
	}
	return r.ReadEnd()
}

func TestReader_RefusesEachTruncation(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	key := signingKey(t)
	for _, by := range []Keys{{Signer: key}, {Signer: key, Recipients: []age.Recipient{id.Recipient()}}} {
		form, raw, files := writeArchive(t, by)
		if err := readArchive(form, raw, files, []age.Identity{id}); err != nil {
			t.Fatal(err)
		}
		for n := range raw {
			if err := readArchive(form, raw[:n], files, []age.Identity{id}); err == nil {
				t.Fatalf("the first %d of %d bytes are a set", n, len(raw))
			}
		}
		if err := readArchive(form, append(bytes.Clone(raw), 0), files, []age.Identity{id}); err == nil {
			t.Error("a set with a byte after its end is a set")
		}
	}
}

func TestReader_RefusesSetsOfOtherForms(t *testing.T) {
	_, raw, files := writeArchive(t, Keys{Signer: signingKey(t)})
	wantReason(t, readArchive(clusterForm(), raw, files, nil), Unknown)
	wantReason(t, readArchive(Form{"head.json", "other.sig"}, raw, files, nil), Damaged)
}

func TestWriteSet_RefusesChangedMember(t *testing.T) {
	m := NewMember("a", []byte("data"))
	m.Content = bytes.NewReader([]byte("date"))
	_, err := Form{"h", "s"}.WriteSet(&bytes.Buffer{}, nil, time.Time{}, []Member{m}, Keys{})
	wantReason(t, err, Damaged)
}
