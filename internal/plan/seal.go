package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The type of every plan.
const (
	APIVersion = "slipway.dev/v1alpha1"
	Kind       = "Plan"
)

// ErrNotAPlan reports content that is not a plan.
var ErrNotAPlan = errors.New("not a plan: want apiVersion " + APIVersion + " and kind " + Kind)

// ErrDigest reports a plan that was changed after it was sealed.
var ErrDigest = errors.New("the plan was changed after it was made: its digest does not match; plan again")

// ErrDamaged reports a plan that is incomplete, or has other content after it.
var ErrDamaged = errors.New("the plan is incomplete or damaged; copy it again, or plan again")

// Seal completes a plan: it sets its type and its digest. The same content always gives
// the same digest, "sha256:" and 64 hexadecimal digits, over the JSON of the plan without
// the digest.
func (p *Plan) Seal() error {
	p.APIVersion, p.KindName = APIVersion, Kind
	if p.Steps == nil {
		p.Steps = []Step{} // a plan without steps has an empty list, not null
	}
	d, err := p.computeDigest()
	if err != nil {
		return err
	}
	p.Digest = d
	return nil
}

func (p *Plan) computeDigest() (string, error) {
	open := *p
	open.Digest = ""
	b, err := json.Marshal(&open)
	if err != nil {
		return "", fmt.Errorf("computing the plan's digest: %w", err)
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Encode returns the plan in the format of a saved plan: indented JSON with a newline at
// the end.
func (p *Plan) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("encoding the plan: %w", err)
	}
	return b.Bytes(), nil
}

// Decode parses a saved plan. It is strict: ErrNotAPlan for other content, ErrDigest for a
// plan that was changed, ErrDamaged for one that is incomplete or has content after it,
// and an error for an unknown field.
func Decode(data []byte) (*Plan, error) {
	if !saysPlan(data) {
		return nil, ErrNotAPlan
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	p := new(Plan)
	err := dec.Decode(p)
	var syntax *json.SyntaxError
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &syntax) {
		return nil, ErrDamaged
	}
	if err != nil {
		return nil, fmt.Errorf("decoding the plan: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, ErrDamaged
	}
	d, err := p.computeDigest()
	if err != nil {
		return nil, err
	}
	if p.Digest != d {
		return nil, ErrDigest
	}
	return p, nil
}

// saysPlan reports whether a file claims to be a plan. It reads only as far as necessary,
// so it also recognizes an incomplete plan.
func saysPlan(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	said := map[any]string{}
	for dec.More() && (said["apiVersion"] == "" || said["kind"] == "") {
		key, err := dec.Token()
		if err != nil {
			return false
		}
		var value any
		if err := dec.Decode(&value); err != nil {
			return false
		}
		if text, ok := value.(string); ok {
			said[key] = text
		}
	}
	return said["apiVersion"] == APIVersion && said["kind"] == Kind
}
