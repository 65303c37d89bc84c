package bundle

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var (
	ofDigest = v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}
	ofBundle = Manifest{Kubernetes: "v1.37.1", Arches: []string{"amd64", "arm64"}}
	signedAt = time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
)

// keyPairFrom makes a pair of keys that is always the same.
func keyPairFrom(seed byte) (ed25519.PrivateKey, Key) {
	private := ed25519.NewKeyFromSeed(slices.Repeat([]byte{seed}, ed25519.SeedSize))
	public, _ := private.Public().(ed25519.PublicKey)
	return private, Key{public: string(public)}
}

// bogusSignatures returns signatures that no key verifies.
func bogusSignatures(n int) (lines []string) {
	for i := range n {
		made := signedAt.Add(time.Duration(i) * time.Second).Format(time.RFC3339)
		lines = append(lines, signature{"v1.37.1", "amd64", made, make([]byte, ed25519.SignatureSize)}.String())
	}
	return lines
}

func TestCheckSigned_AcceptsOnlyGivenKeys(t *testing.T) {
	private, key := keyPairFrom(1)
	_, other := keyPairFrom(2)
	good := newSignature(private, ofDigest, ofBundle, signedAt).String()
	older := newSignature(private, ofDigest, ofBundle, signedAt.Add(-time.Hour)).String()
	elsewhere := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("b", 64)}
	as := func(version string, arches ...string) string {
		return newSignature(private, ofDigest, Manifest{Kubernetes: version, Arches: arches}, signedAt).String()
	}
	v1Statement := base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte("slipway bundle v1\n"+ofDigest.String()+"\n")))
	for name, tt := range map[string]struct {
		value string
		keys  []Key
		want  string
	}{
		"good":                     {good, []Key{key}, ""},
		"no key is asked for":      {"", nil, ""},
		"one of two keys":          {good, []Key{other, key}, ""},
		"unsigned":                 {"", []Key{key}, IDUnsigned},
		"another key's":            {good, []Key{other}, IDUnsigned},
		"behind bogus ones":        {strings.Join(append(bogusSignatures(100), good), "\n"), []Key{key}, ""},
		"bogus alone":              {strings.Join(bogusSignatures(3), "\n"), []Key{key}, IDSignature},
		"of another digest":        {newSignature(private, elsewhere, ofBundle, signedAt).String(), []Key{key}, IDSignature},
		"as another version":       {as("v1.36.4", "amd64", "arm64"), []Key{key}, IDSignature},
		"for other architectures":  {as("v1.37.1", "amd64"), []Key{key}, IDSignature},
		"another time written":     {strings.Replace(good, "08:00", "09:00", 1), []Key{key}, IDSignature},
		"of the former statement":  {v1Statement, []Key{key}, IDUnsigned},
		"made then":                {good, []Key{key.AcceptedSince(signedAt)}, ""},
		"made before":              {good, []Key{key.AcceptedSince(signedAt.Add(time.Second))}, IDOldSignature},
		"before, and bogus later":  {older + "\n" + bogusSignatures(1)[0], []Key{key.AcceptedSince(signedAt)}, IDOldSignature},
		"one before and one later": {older + "\n" + good, []Key{key.AcceptedSince(signedAt)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := v1.Descriptor{Digest: ofDigest, Annotations: map[string]string{annotationSignature + key.Name(): tt.value}}
			got, err := "", checkSigned(tt.keys, root, &ofBundle, "it")
			if isDiagnostic(err) {
				got = errorID(err)
			}
			if got != tt.want {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// errorID is the id at the end of a diagnostic's first line.
func errorID(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(line[strings.LastIndex(line, "[")+1:], "]")
}

// TestMergeAnnotations_KeepsValidSignatures: annotations from others neither replace nor
// displace valid signatures.
func TestMergeAnnotations_KeepsValidSignatures(t *testing.T) {
	private, key := keyPairFrom(1)
	note := annotationSignature + key.Name()
	good := newSignature(private, ofDigest, ofBundle, signedAt).String()
	newer := newSignature(private, ofDigest, ofBundle, signedAt.Add(time.Hour)).String()
	full := strings.Join(bogusSignatures(maxPerKey), "\n")
	strangers := map[string]string{}
	for i := range 2 * maxSigners {
		strangers[fmt.Sprintf("%s%016x", annotationSignature, i)] = bogusSignatures(1)[0]
	}
	for name, tt := range map[string]struct {
		have, more map[string]string
		keys       []Key
		want       string // of the key
	}{
		"a first one": {nil, map[string]string{note: good}, nil, good},
		"bogus does not replace": {
			map[string]string{note: good},
			map[string]string{note: bogusSignatures(1)[0]},
			nil, good + "\n" + bogusSignatures(1)[0],
		},
		"bogus is not kept for a key": {map[string]string{note: good}, map[string]string{note: bogusSignatures(1)[0]}, []Key{key}, good},
		"many are cut, the old ones stay": {
			map[string]string{note: good},
			map[string]string{note: full},
			nil, good + "\n" + strings.Join(bogusSignatures(maxPerKey-1), "\n"),
		},
		"good replaces bogus for a key": {map[string]string{note: full}, map[string]string{note: good}, []Key{key}, good},
		"none verifies":                 {map[string]string{note: full}, map[string]string{note: bogusSignatures(1)[0]}, []Key{key}, full},
		"the newest first":              {map[string]string{note: good}, map[string]string{note: newer}, []Key{key}, newer + "\n" + good},
		"the same twice":                {map[string]string{note: good}, map[string]string{note: good}, nil, good},
		"many keys before it":           {strangers, map[string]string{note: good}, []Key{key}, good},
		"many keys, none asked for":     {strangers, map[string]string{note: good}, nil, ""},
		"not a signature":               {nil, map[string]string{note: "hello"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := mergeAnnotations(ofDigest, tt.have, tt.more, tt.keys)
			if diff := cmp.Diff(tt.want, got[note]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	got := mergeAnnotations(ofDigest, map[string]string{"x": "ours"}, map[string]string{"x": "theirs", "y": "new"}, nil)
	if diff := cmp.Diff(map[string]string{"x": "ours", "y": "new"}, got); diff != "" {
		t.Errorf("other annotations (-want +got):\n%s", diff)
	}
	if got := mergeAnnotations(ofDigest, nil, strangers, nil); len(got) != maxSigners {
		t.Errorf("%d keys are kept", len(got))
	}
}

func TestParseSince_ReadsDates(t *testing.T) {
	for text, want := range map[string]string{
		"": "0001-01-01T00:00:00Z", "2026-11-26": "2026-11-26T00:00:00Z", "2026-11-26T08:00:00+02:00": "2026-11-26T06:00:00Z",
		"yesterday": "", "1h": "",
	} {
		got, err := ParseSince(text, true)
		if (err == nil) != (want != "") || err == nil && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := ParseSince("2026-11-26", false); err == nil {
		t.Error("a time without a key")
	}
}

// FuzzSignature: each signature has one text form, and only the signed content verifies.
func FuzzSignature(f *testing.F) {
	private, key := keyPairFrom(1)
	good := newSignature(private, ofDigest, ofBundle, signedAt).String()
	f.Add(good)
	f.Add(strings.Replace(good, "v1.37.1", "v1.36.4", 1))
	f.Add(bogusSignatures(1)[0])
	f.Fuzz(func(t *testing.T, line string) {
		s, ok := parseSignature(line)
		if !ok {
			return
		}
		if s.String() != line || len(line) > maxLine {
			t.Errorf("%q is read as %q", line, s)
		}
		if s.isSignedBy(key, ofDigest) != (line == good) {
			t.Errorf("%q verifies: %v", line, s.isSignedBy(key, ofDigest))
		}
	})
}
