package lifecycle

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// host queries one host.
func (l *looker) host(ctx context.Context, h *hostLook) {
	f := facts.Ask(ctx, h.spec, h.conn, op.Facts{Dirs: []string{facts.DirKubelet}})
	if h.facts, h.err = f.Facts, f.Err; h.err != nil {
		return
	}
	h.certs, _ = l.certificates(ctx, h) // other data of the host is reported anyway
	l.byItself(ctx, h)
	if !facts.RunsKubelet(h.spec.Roles) {
		return
	}
	if w, ok := h.conn.(remote.Worker); ok {
		var out bytes.Buffer
		if _, err := w.Run(ctx, remote.Command{Argv: []string{"systemctl", "is-active", "kubelet"}}, nil, &out, &bytes.Buffer{}); err == nil {
			h.kubelet = strings.TrimSpace(out.String())
		}
	}
	if h.err = ctx.Err(); h.err != nil || len(l.admin) == 0 {
		return
	}
	h.asked = true
	client, err := l.client(h, l.env.Endpoint())
	if err != nil {
		h.endpoint = err
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	h.endpoint = client.Healthy(ctx)
}

// hostResources returns the resources that a host reports.
func hostResources(f *op.HostFacts) Resources {
	r := Resources{CPU: strconv.Itoa(f.CPUs), Memory: fmt.Sprintf("%dKi", f.MemoryBytes>>10)}
	if len(f.Disks) > 0 {
		r.Disk = fmt.Sprintf("%dKi", f.Disks[0].TotalBytes>>10)
	}
	return r
}
