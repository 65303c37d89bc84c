package view

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"

	"slipway.dev/slipway/internal/lifecycle/hostexec"
)

// A HostOutput is the output of one host as JSON or YAML.
type HostOutput struct {
	hostexec.HostResult
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// Encoding is "base64" for both streams if one is not UTF-8 text, otherwise "".
	Encoding string `json:"encoding,omitempty"`
	// Truncated reports whether the host printed more than is included.
	Truncated bool `json:"truncated,omitempty"`
}

// maxHostOutput limits how much of each stream of a host is included in JSON or YAML, in bytes.
const maxHostOutput = 4 << 20

// A HostBuffer keeps the beginning of the data that is written to it.
type HostBuffer struct {
	bytes.Buffer
	isTruncated bool
}

// Write keeps the data, or the part of it for which there is space. It never fails.
func (b *HostBuffer) Write(p []byte) (int, error) {
	room := min(len(p), maxHostOutput-b.Len())
	b.isTruncated = b.isTruncated || room < len(p)
	_, _ = b.Buffer.Write(p[:room])
	return len(p), nil
}

// completeText returns the kept data, without an incomplete character at the end.
func (b *HostBuffer) completeText() []byte {
	text := b.Bytes()
	for i := 1; b.isTruncated && i < utf8.UTFMax && i <= len(text); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				text = text[:len(text)-i]
			}
			break
		}
	}
	return text
}

// NewHostOutput returns the output of a host that was written to two buffers.
func NewHostOutput(r hostexec.HostResult, out, errw *HostBuffer) HostOutput {
	o, e := out.completeText(), errw.completeText()
	h := HostOutput{HostResult: r, Stdout: string(o), Stderr: string(e), Truncated: out.isTruncated || errw.isTruncated}
	if !utf8.Valid(o) || !utf8.Valid(e) {
		h.Encoding = "base64"
		h.Stdout, h.Stderr = base64.StdEncoding.EncodeToString(o), base64.StdEncoding.EncodeToString(e)
	}
	return h
}
