package bundle

import (
	"crypto/ed25519"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// annotationSignature followed by the name of a key is an annotation of the bundle's
	// index in index.json. Its lines are signatures by that key. So signatures are part
	// of a directory or a file, and do not change a digest.
	annotationSignature = "dev.slipway.signature."
	// maxSigners limits the keys whose signatures are kept, maxPerKey the signatures of
	// one key, and maxReferrers the manifests that are read from a registry to find them.
	maxSigners, maxPerKey, maxReferrers = 64, 16, 1024
	// maxLine limits one signature, in bytes.
	maxLine = 512
)

// A signature confirms the version of a bundle at a time. Its text is one line: version,
// architectures, time and the signature in base64.
type signature struct {
	kubernetes, arches, made string
	bytes                    []byte
}

// newSignature creates a signature of a bundle.
func newSignature(private ed25519.PrivateKey, digest v1.Hash, m Manifest, now time.Time) signature {
	s := signature{kubernetes: m.Kubernetes, arches: strings.Join(m.Arches, ","), made: now.UTC().Format(time.RFC3339)}
	s.bytes = ed25519.Sign(private, s.signedText(digest))
	return s
}

// signedText returns the signed text. The digest covers every byte of the bundle; the
// other values can be checked without opening it.
func (s signature) signedText(digest v1.Hash) []byte {
	return []byte(strings.Join([]string{"slipway bundle v2", digest.String(), s.kubernetes, s.arches, s.made, ""}, "\n"))
}

func (s signature) String() string {
	return strings.Join([]string{s.kubernetes, s.arches, s.made, base64.StdEncoding.EncodeToString(s.bytes)}, " ")
}

// isSignedBy reports whether a key created the signature for a bundle.
func (s signature) isSignedBy(k Key, digest v1.Hash) bool {
	return len(k.public) == ed25519.PublicKeySize && ed25519.Verify(ed25519.PublicKey(k.public), s.signedText(digest), s.bytes)
}

// signedAt returns the time of the signature, in seconds.
func (s signature) signedAt() time.Time {
	t, err := time.Parse(time.RFC3339, s.made)
	if err != nil {
		return time.Time{}
	}
	return t
}

// parseSignature parses one line. There is exactly one text for each signature.
func parseSignature(line string) (s signature, ok bool) {
	part := strings.Split(line, " ")
	if len(line) > maxLine || len(part) != 4 {
		return signature{}, false
	}
	made, err := time.Parse(time.RFC3339, part[2])
	if err != nil || made.UTC().Format(time.RFC3339) != part[2] {
		return signature{}, false
	}
	sig, err := base64.StdEncoding.Strict().DecodeString(part[3])
	s = signature{kubernetes: part[0], arches: part[1], made: part[2], bytes: sig}
	return s, err == nil && len(sig) == ed25519.SignatureSize && s.String() == line
}

// parseSignatures parses the value of an annotation. Invalid lines are dropped.
func parseSignatures(value string) (out []signature) {
	for line := range strings.Lines(value) {
		if s, ok := parseSignature(strings.TrimSuffix(line, "\n")); ok {
			out = append(out, s)
		}
	}
	return out
}

// mergeAnnotations merges the annotations of two copies of a bundle. Existing annotations are never
// overwritten. Of signatures by keys, only valid ones are kept, so that others cannot
// crowd them out; of unknown keys, all up to a limit.
func mergeAnnotations(digest v1.Hash, have, more map[string]string, keys []Key) map[string]string {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]string{}
	}
	signers := 0
	for note := range have {
		if strings.HasPrefix(note, annotationSignature) {
			signers++
		}
	}
	for _, note := range slices.Sorted(maps.Keys(more)) {
		name, ok := strings.CutPrefix(note, annotationSignature)
		old, there := out[note]
		known := slices.IndexFunc(keys, func(k Key) bool { return k.Name() == name })
		switch {
		case !ok && !there:
			out[note] = more[note]
			continue
		case !ok, !there && known < 0 && signers >= maxSigners:
			continue
		}
		var lines []string
		for _, s := range append(parseSignatures(old), parseSignatures(more[note])...) {
			if line := s.String(); !slices.Contains(lines, line) && (known < 0 || s.isSignedBy(keys[known], digest)) {
				lines = append(lines, line)
			}
		}
		if known >= 0 { // the newest first, because checks ask for it
			slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(signatureTime(b), signatureTime(a)) })
		}
		if len(lines) == 0 {
			continue
		}
		if !there {
			signers++
		}
		out[note] = strings.Join(lines[:min(len(lines), maxPerKey)], "\n")
	}
	return out
}

// ParseSince parses the time of Key.Since: a day, or a time with a zone. Empty accepts
// any time. A time needs keys, because without a signature the time of a bundle is
// unknown.
func ParseSince(text string, keys bool) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t, err = time.Parse(time.DateOnly, text)
	}
	switch {
	case err != nil:
		return t, newProblem(IDOldSignature, "write a date or a time, such as 2026-11-26 or 2026-11-26T08:00:00Z",
			"%q is not a valid time for --not-older-than", text)
	case !keys:
		return t, newProblem(IDOldSignature, "add --key: the signing time is trusted only if the signature is verified",
			"--not-older-than needs a key")
	}
	return t, nil
}

// signatureTime returns the time in the line of a signature, in a sortable form.
func signatureTime(line string) string { return strings.Split(line, " ")[2] }
