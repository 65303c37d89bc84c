package cli

import (
	"fmt"
	"io"
	"sync"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
)

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
func (c *console) newHostOutputs(to *errorKeeper, targets []hostexec.Target) (
	output func(hostexec.Target) (io.Writer, io.Writer), done func(hostexec.HostResult), finish func(),
) {
	if c.format != view.Text {
		kept := map[[2]string]*[2]view.HostBuffer{}
		for _, t := range targets {
			kept[[2]string{t.Cluster, t.Host.Name}] = &[2]view.HostBuffer{}
		}
		output = func(t hostexec.Target) (io.Writer, io.Writer) {
			k := kept[[2]string{t.Cluster, t.Host.Name}]
			return &k[0], &k[1]
		}
		return output, func(r hostexec.HostResult) {
			k := kept[[2]string{r.Cluster, r.Host}]
			_ = view.WriteItem(to, c.format, view.NewHostOutput(r, &k[0], &k[1])) // to keeps the error
			*k = [2]view.HostBuffer{}
		}, func() {}
	}
	if len(targets) == 1 {
		return func(hostexec.Target) (io.Writer, io.Writer) { return to, c.Err }, nil, func() {}
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
	output = func(t hostexec.Target) (io.Writer, io.Writer) {
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
