//go:build linux

package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/program"
	"slipway.dev/slipway/internal/node/op"
)

// PodHostsOp executes op.PodHosts.
type PodHostsOp struct{ Op op.PodHosts }

// The content that a kubelet writes: see nodeHostsFileContent in Kubernetes'
// pkg/kubelet/kubelet_pods.go.
const (
	podHosts      = "/var/lib/kubelet/pods/*/etc-hosts"
	PodHostsBegin = "# Kubernetes-managed hosts file (host network).\n"
	podHostsOwn   = "\n# Entries added by HostAliases.\n"
)

// staleHosts returns the copies of the hosts file, by path, with another address for the
// name.
func staleHosts(h *host.Host, o op.PodHosts) (map[string]string, error) {
	paths, err := filepath.Glob(h.DiskPath(podHosts))
	if err != nil {
		return nil, err
	}
	stale := map[string]string{}
	for _, p := range paths {
		text, err := bounded.ReadFile(p, bounded.Pod)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the pod is gone
		}
		if errors.As(err, new(*bounded.LimitError)) {
			continue // a container has written it, so it no longer belongs to the kubelet
		}
		if err != nil {
			return nil, fmt.Errorf("reading the hosts file of a pod: %w", err)
		}
		if strings.HasPrefix(string(text), PodHostsBegin) && lookUp(string(text), o.Name) != o.Address {
			stale[p] = string(text)
		}
	}
	return stale, nil
}

// lookUp returns the first address of a name in a hosts file.
func lookUp(text, name string) string {
	for line := range strings.Lines(text) {
		entry, _, _ := strings.Cut(line, "#")
		words := strings.Fields(entry)
		for i, word := range words {
			if i > 0 && word == name {
				return words[0]
			}
		}
	}
	return ""
}

func (x *PodHostsOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	stale, err := staleHosts(h, o)
	if err != nil || len(stale) == 0 {
		return host.CheckResult{}, err
	}
	return host.CheckResult{Change: fmt.Sprintf("write the hosts files of %d pods", len(stale))}, nil
}

// Apply makes no ledger entry: the files are removed with their pods.
func (x *PodHostsOp) Apply(_ context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	stale, err := staleHosts(h, o)
	if err != nil {
		return err
	}
	own, err := bounded.ReadFile(h.DiskPath(program.HostsFile), bounded.Config)
	if err != nil {
		return err
	}
	if has := lookUp(string(own), o.Name); has != o.Address {
		return &op.Error{
			Reason:  "HostsFile",
			Message: fmt.Sprintf("%s maps %s to %q, but pods need the address %q", program.HostsFile, o.Name, has, o.Address),
		}
	}
	for p, text := range stale {
		aliases := ""
		if i := strings.Index(text, podHostsOwn); i >= 0 {
			aliases = text[i:]
		}
		if err := overwriteContent(p, PodHostsBegin+string(own)+aliases); err != nil {
			return fmt.Errorf("writing the hosts file of a pod: %w", err)
		}
	}
	return nil
}

// overwriteContent replaces the content of a file that is mounted elsewhere; replacing
// the file itself would have no effect there. A missing file is not written.
func overwriteContent(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), 0)
	return errors.Join(err, f.Truncate(int64(len(text))), f.Close())
}
