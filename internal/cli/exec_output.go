package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/lifecycle"
)

// A hostOutput is the output of one host as JSON or YAML.
type hostOutput struct {
	lifecycle.HostResult
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// Encoding is "base64" for both streams if one is not UTF-8 text, otherwise "".
	Encoding string `json:"encoding,omitempty"`
	// Truncated reports whether the host printed more than is included.
	Truncated bool `json:"truncated,omitempty"`
}

// maxKept limits how much of each stream of a host is included in JSON or YAML, in bytes.
const maxKept = 4 << 20

// boundedBuffer keeps the beginning of the data that is written to it.
type boundedBuffer struct {
	bytes.Buffer
	isTruncated bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	room := min(len(p), maxKept-b.Len())
	b.isTruncated = b.isTruncated || room < len(p)
	_, _ = b.Buffer.Write(p[:room]) // never fails
	return len(p), nil
}

// completeText returns the kept data, without an incomplete character at the end.
func (b *boundedBuffer) completeText() []byte {
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

func newHostOutput(r lifecycle.HostResult, out, errw *boundedBuffer) hostOutput {
	o, e := out.completeText(), errw.completeText()
	h := hostOutput{HostResult: r, Stdout: string(o), Stderr: string(e), Truncated: out.isTruncated || errw.isTruncated}
	if !utf8.Valid(o) || !utf8.Valid(e) {
		h.Encoding = "base64"
		h.Stdout, h.Stderr = base64.StdEncoding.EncodeToString(o), base64.StdEncoding.EncodeToString(e)
	}
	return h
}

// An errorKeeper passes data to a writer and keeps the first error.
type errorKeeper struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (k *errorKeeper) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.err == nil {
			k.err = err
		}
	}
	return n, err
}

// firstError returns the error of writing the output, if there is one. It has precedence
// over err, the error of the hosts.
func (k *errorKeeper) firstError(err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil || isReaderGone(k.err) && err != nil {
		return err
	}
	return fmt.Errorf("writing the output: %w", k.err)
}

// newHostOutputs returns a function that gives the writers for a host's output, a
// function that is called when a host has ended, which may be nil, and a function that
// writes the rest.
func (c *console) newHostOutputs(to *errorKeeper, targets []lifecycle.Target) (
	output func(lifecycle.Target) (io.Writer, io.Writer), done func(lifecycle.HostResult), finish func(),
) {
	if c.format != view.Text {
		kept := map[[2]string]*[2]boundedBuffer{}
		for _, t := range targets {
			kept[[2]string{t.Cluster, t.Host.Name}] = &[2]boundedBuffer{}
		}
		output = func(t lifecycle.Target) (io.Writer, io.Writer) {
			k := kept[[2]string{t.Cluster, t.Host.Name}]
			return &k[0], &k[1]
		}
		return output, func(r lifecycle.HostResult) {
			k := kept[[2]string{r.Cluster, r.Host}]
			_ = view.WriteItem(to, c.format, newHostOutput(r, &k[0], &k[1])) // to keeps the error
			*k = [2]boundedBuffer{}
		}, func() {}
	}
	if len(targets) == 1 {
		return func(lifecycle.Target) (io.Writer, io.Writer) { return to, c.Err }, nil, func() {}
	}
	label := newTargetLabeler(targets)
	var names []string
	for _, t := range targets {
		names = append(names, label(t.Cluster, t.Host.Name))
	}
	out, errw := view.NewPrefixedOutput(names, c.outStyle(), c.OutIsTerminal), view.NewPrefixedOutput(names, c.errStyle(), c.Size != nil)
	open := map[string][2]io.WriteCloser{}
	for i, t := range targets {
		open[t.Cluster+"@"+t.Host.Name] = [2]io.WriteCloser{out.NewWriter(to, names[i]), errw.NewWriter(c.Err, names[i])}
	}
	output = func(t lifecycle.Target) (io.Writer, io.Writer) {
		o := open[t.Cluster+"@"+t.Host.Name]
		return o[0], o[1]
	}
	finish = func() {
		for _, t := range targets {
			for _, w := range open[t.Cluster+"@"+t.Host.Name] {
				_ = w.Close() // to keeps the error
			}
		}
	}
	return output, nil, finish
}
