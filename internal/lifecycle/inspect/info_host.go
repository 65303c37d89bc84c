package inspect

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// queryHost queries one host.
func (s *Session) queryHost(ctx context.Context, h *Host) {
	f := facts.ReadHost(ctx, h.Spec, h.Conn, op.Facts{Dirs: []string{facts.DirKubelet}})
	if h.facts, h.Err = f.Facts, f.Err; h.Err != nil {
		return
	}
	h.certificates, _ = s.readCertificates(ctx, h) // other data of the host is reported anyway
	s.readSchedule(ctx, h)
	if !hostroles.RunsKubelet(h.Spec.Roles) {
		return
	}
	if w, ok := h.Conn.(remote.Worker); ok {
		var out bytes.Buffer
		if _, err := w.Run(ctx, remote.Command{Argv: []string{"systemctl", "is-active", "kubelet"}}, nil, &out, &bytes.Buffer{}); err == nil {
			h.kubelet = strings.TrimSpace(out.String())
		}
	}
	if h.Err = ctx.Err(); h.Err != nil || len(s.Admin) == 0 {
		return
	}
	h.triedEndpoint = true
	client, err := s.newAPIClient(h, s.Env.APIEndpoint())
	if err != nil {
		h.endpoint = err
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	h.endpoint = client.CheckReady(ctx)
}

// readHostResources returns the resources that a host reports.
func readHostResources(f *op.HostFacts) Resources {
	r := Resources{CPU: strconv.Itoa(f.CPUs), Memory: fmt.Sprintf("%dKi", f.MemoryBytes>>10)}
	if len(f.Disks) > 0 {
		r.Disk = fmt.Sprintf("%dKi", f.Disks[0].TotalBytes>>10)
	}
	return r
}
