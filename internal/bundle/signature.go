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
	// annotationSignature and the name of a key are the name of an annotation in
	// what index.json says of the bundle's index. Its lines are signatures of that
	// key. So they travel with a directory or a file, and change no digest.
	annotationSignature = "dev.slipway.signature."
	// maxSigners bounds the keys whose signatures are kept, maxPerKey those of one
	// key, and maxReferrers what is read from a registry to find them.
	maxSigners, maxPerKey, maxReferrers = 64, 16, 1024
	// maxLine bounds one signature, in bytes.
	maxLine = 512
)

// A signature says who has signed a bundle as which version, and when. Its text
// is one line: version, architectures, time and the signature in base64.
type signature struct {
	kubernetes, arches, made string
	bytes                    []byte
}

// sign makes a signature of a bundle.
func sign(private ed25519.PrivateKey, digest v1.Hash, m Manifest, now time.Time) signature {
	s := signature{kubernetes: m.Kubernetes, arches: strings.Join(m.Arches, ","), made: now.UTC().Format(time.RFC3339)}
	s.bytes = ed25519.Sign(private, s.statement(digest))
	return s
}

// statement is what is signed. The digest covers every byte of the bundle; the rest
// says what it was signed as without a look into it.
func (s signature) statement(digest v1.Hash) []byte {
	return []byte(strings.Join([]string{"slipway bundle v2", digest.String(), s.kubernetes, s.arches, s.made, ""}, "\n"))
}

func (s signature) String() string {
	return strings.Join([]string{s.kubernetes, s.arches, s.made, base64.StdEncoding.EncodeToString(s.bytes)}, " ")
}

// verifies reports whether a key has made the signature for a bundle.
func (s signature) verifies(k Key, digest v1.Hash) bool {
	return len(k.public) == ed25519.PublicKeySize && ed25519.Verify(ed25519.PublicKey(k.public), s.statement(digest), s.bytes)
}

// time is when the signature was made, to the second.
func (s signature) time() time.Time {
	t, err := time.Parse(time.RFC3339, s.made)
	if err != nil {
		return time.Time{}
	}
	return t
}

// parseSignature reads one line. There is one text for each signature.
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

// parseSignatures reads the value of an annotation. Lines that are not signatures
// are dropped.
func parseSignatures(value string) (out []signature) {
	for line := range strings.Lines(value) {
		if s, ok := parseSignature(strings.TrimSuffix(line, "\n")); ok {
			out = append(out, s)
		}
	}
	return out
}

// joined returns the annotations of a bundle with those of another copy of it. What
// is there is never overwritten. Of the signatures of keys, only those that verify
// are kept, so that others do not crowd them out; of unknown keys, all up to a bound.
func joined(digest v1.Hash, have, more map[string]string, keys []Key) map[string]string {
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
			if line := s.String(); !slices.Contains(lines, line) && (known < 0 || s.verifies(keys[known], digest)) {
				lines = append(lines, line)
			}
		}
		if known >= 0 { // the newest first: it is the one that is asked for
			slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(timeOf(b), timeOf(a)) })
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

// ParseSince reads the time of Key.Since: a day, or a moment with its zone. Empty is
// any time. A time needs keys: without one, nobody says when a bundle was made.
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
		return t, problem(IDOldSignature, "write a date or a time, such as 2026-11-26 or 2026-11-26T08:00:00Z", "%q is not a time for --not-older-than", text)
	case !keys:
		return t, problem(IDOldSignature, "add --key: the time comes from a verified signature", "--not-older-than needs a key")
	}
	return t, nil
}

// timeOf returns the time in the line of a signature, in a form that sorts.
func timeOf(line string) string { return strings.Split(line, " ")[2] }
