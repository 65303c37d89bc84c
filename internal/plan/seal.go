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

// What every plan says of itself.
const (
	APIVersion = "slipway.dev/v1alpha1"
	Kind       = "Plan"
)

// ErrNotAPlan is content that is something else than a plan.
var ErrNotAPlan = errors.New("not a plan: want apiVersion " + APIVersion + " and kind " + Kind)

// ErrDigest is a plan that was changed after it was sealed.
var ErrDigest = errors.New("the plan was changed after it was made: its digest does not match; plan again")

// Seal completes a plan: it says that it is one, and gets its digest. The
// same content always gives the same digest, "sha256:" and 64 hexadecimal
// digits, over the plan's JSON without the digest.
func (p *Plan) Seal() error {
	p.APIVersion, p.KindName = APIVersion, Kind
	if p.Steps == nil {
		p.Steps = []Step{} // "nothing to do" is a list, too
	}
	d, err := p.digest()
	if err != nil {
		return err
	}
	p.Digest = d
	return nil
}

func (p *Plan) digest() (string, error) {
	open := *p
	open.Digest = ""
	b, err := json.Marshal(&open)
	if err != nil {
		return "", fmt.Errorf("computing the plan's digest: %w", err)
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Encode is the plan as it is saved: indented JSON with a newline at the end.
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

// Decode reads a saved plan. It is strict: ErrNotAPlan for something else,
// ErrDigest for a plan that was changed, and an error for an unknown field or
// anything after the plan.
func Decode(data []byte) (*Plan, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if json.Unmarshal(data, &head) != nil || head.APIVersion != APIVersion || head.Kind != Kind {
		return nil, ErrNotAPlan
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	p := new(Plan)
	if err := dec.Decode(p); err != nil {
		return nil, fmt.Errorf("decoding the plan: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decoding the plan: there is something after its end")
	}
	d, err := p.digest()
	if err != nil {
		return nil, err
	}
	if p.Digest != d {
		return nil, ErrDigest
	}
	return p, nil
}
