//go:build linux

package program

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// HostsFile is the hosts file of the machine.
	HostsFile = "/etc/hosts"
	// hostsName is the hosts file that a unit sees instead, in the directory of the unit.
	hostsName = "hosts"
)

// writeHosts writes the hosts file of a unit with separate names. Like the original, it
// does not have to survive a crash of the host.
func writeHosts(h *host.Host, o op.Exec, dir string) error {
	if len(o.Hosts) == 0 {
		return nil
	}
	text, err := bounded.ReadFile(h.DiskPath(HostsFile), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return &op.Error{Reason: "Internal", Message: fmt.Sprintf("%s needs separate host names, but %s does not exist", o.Name, HostsFile)}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, hostsName), []byte(withHosts(string(text), o.Hosts)), 0o644)
}

// withHosts returns a hosts file in which names have other addresses.
func withHosts(text string, other map[string]string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		entry, _, _ := strings.Cut(line, "#")
		words := strings.Fields(entry)
		if len(words) == 0 {
			continue
		}
		names := slices.DeleteFunc(words[1:], func(name string) bool { return other[name] != "" })
		if len(names) > 0 {
			fmt.Fprintf(&b, "%s %s\n", words[0], strings.Join(names, " "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other)) {
		fmt.Fprintf(&b, "%s %s\n", other[name], name)
	}
	return b.String()
}
