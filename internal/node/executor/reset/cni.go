//go:build linux

package reset

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// attachments has CNI's allocations for Slipway's containers. All CNI users on a host,
// such as podman, share its directories, tables and chains: the container ID in an
// allocation identifies its owner.
type attachments struct {
	asked      bool
	containers map[string]bool
	networks   []string
	namespaces []string // names below netnsDir
	paths      []string // paths below CNI's directory, the content of a directory before the directory
}

// cached is the record of CNI's library for an attachment.
type cached struct {
	ContainerID string `json:"containerId"`
	NetworkName string `json:"networkName"`
	NetNS       string `json:"netns"`
}

// findAttachments reads CNI's directory. It changes nothing.
func findAttachments(h *host.Host, o op.Reset) (attachments, error) {
	a := attachments{asked: o.CNI != "", containers: map[string]bool{}, networks: o.Networks}
	if !a.asked {
		return a, nil
	}
	if o.Sandboxes != "" {
		ids, err := containerNames(h, o.Sandboxes)
		if err != nil {
			return a, err
		}
		for _, id := range ids {
			a.containers[id] = true
		}
	}
	if err := cachedAttachments(h, filepath.Join(o.CNI, "results"), &a); err != nil {
		return a, err
	}
	if err := findReservations(h, filepath.Join(o.CNI, "networks"), &a); err != nil {
		return a, err
	}
	return a, removeIfEmpty(h, o, &a)
}

// cachedAttachments finds Slipway's attachments in the cache of the CNI library. A
// container is in more than one network, such as loopback; a network that only Slipway
// uses identifies its owner.
func cachedAttachments(h *host.Host, dir string, a *attachments) error {
	names, err := containerNames(h, dir)
	if err != nil {
		return err
	}
	notes := map[string]cached{}
	for _, name := range names {
		raw, err := atomicfile.ReadFile(h.DiskPath(filepath.Join(dir, name)), bounded.Config)
		var c cached
		if err != nil || json.Unmarshal(raw, &c) != nil {
			continue // removed meanwhile, or of another owner
		}
		notes[name] = c
		if slices.Contains(a.networks, c.NetworkName) {
			a.containers[c.ContainerID] = true
		}
	}
	for _, name := range names {
		c, ok := notes[name]
		if !ok || !a.containers[c.ContainerID] {
			continue
		}
		a.paths = append(a.paths, filepath.Join(dir, name))
		ns := filepath.Base(c.NetNS)
		known := slices.Contains(a.namespaces, ns) || !slices.Contains([]string{netnsDir, "/var" + netnsDir}, filepath.Dir(c.NetNS))
		if !known && host.Exists(h.DiskPath(filepath.Join(netnsDir, ns))) {
			a.namespaces = append(a.namespaces, ns)
		}
	}
	return nil
}

// findReservations finds the addresses that host-local has assigned to Slipway's
// containers, one file each; a network without other addresses is removed with the
// plugin's own records.
func findReservations(h *host.Host, dir string, a *attachments) error {
	networks, err := containerNames(h, dir)
	if err != nil {
		return err
	}
	for _, network := range networks {
		names, err := containerNames(h, filepath.Join(dir, network))
		if err != nil {
			return err
		}
		var ours, notes []string
		others := false
		for _, name := range names {
			p := filepath.Join(dir, network, name)
			if name == "lock" || strings.HasPrefix(name, "last_reserved_ip.") {
				notes = append(notes, p)
				continue
			}
			raw, err := atomicfile.ReadFile(h.DiskPath(p), bounded.Config)
			id, _, _ := strings.Cut(string(raw), "\n")
			if err == nil && a.containers[strings.TrimSpace(id)] || slices.Contains(a.networks, network) {
				ours = append(ours, p)
				continue
			}
			others = true
		}
		if len(ours) > 0 && !others || slices.Contains(a.networks, network) {
			a.paths = append(a.paths, notes...) // while the owner can be identified
		}
		a.paths = append(a.paths, ours...)
	}
	return nil
}

// containerNames returns the content of a directory of the host; none if it does not
// exist.
func containerNames(h *host.Host, dir string) ([]string, error) {
	entries, err := atomicfile.ReadDir(h.DiskPath(dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out, nil
}

// isOwn reports whether a rule with this comment is for one of Slipway's containers.
func (a attachments) isOwn(comment string) bool {
	for _, n := range a.networks {
		// As the plugins portmap and bridge write it.
		if strings.Contains(comment, `name: "`+n+`"`) || strings.Contains(comment, "net: "+n+",") {
			return true
		}
	}
	const telling = 16 // of the characters of an ID: a long comment is truncated
	for _, word := range strings.FieldsFunc(comment, func(r rune) bool { return strings.ContainsRune(` ",:`, r) }) {
		for id := range a.containers {
			if word == id || len(word) >= telling && strings.HasPrefix(id, word) {
				return true
			}
		}
	}
	return false
}

// removeIfEmpty adds the directories below CNI's that only have content of Slipway and
// did not exist before Slipway.
func removeIfEmpty(h *host.Host, o op.Reset, a *attachments) error {
	l, err := ledger.Open(h.State, h.Root, h.Disk, ledger.Owner{})
	if err != nil {
		return err
	}
	networks, err := containerNames(h, filepath.Join(o.CNI, "networks"))
	if err != nil {
		return err
	}
	dirs := []string{"results"}
	for _, n := range networks {
		dirs = append(dirs, filepath.Join("networks", n))
	}
	for _, dir := range append(dirs, "networks") {
		dir = filepath.Join(o.CNI, dir)
		if info, err := os.Lstat(h.DiskPath(dir)); err != nil || !info.IsDir() || !l.WasAbsent(dir) {
			continue
		}
		names, err := containerNames(h, dir)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(a.paths, filepath.Join(dir, n)) }) {
			a.paths = append(a.paths, dir)
		}
	}
	return nil
}

// removeAttachments removes Slipway's files below CNI's directory.
func removeAttachments(h *host.Host, a attachments) error {
	for _, p := range a.paths {
		// Other software may have added files to a directory since.
		if err := h.Disk.RemovePath(h.DiskPath(p)); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("removing %s: %w", p, err)
		}
	}
	return nil
}
