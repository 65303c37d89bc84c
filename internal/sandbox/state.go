package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"slipway.dev/slipway/internal/process"
)

// Files of a sandbox, in its directory.
const (
	specFile       = "sandbox.json"
	keyFile        = "id_ed25519"
	knownHostsFile = "known_hosts"
)

// Files of a machine, in its directory below.
const (
	diskFile    = "disk.ext4"
	rootDir     = "root"       // where its own mount namespace mounts the disk
	stateFile   = "state.json" // who runs it
	lockFile    = "lock"       // held by its supervisor
	logFile     = "log"        // its supervisor's
	hostKeyFile = "ssh_host_ed25519_key"
	cutFile     = "cut" // its cable is pulled
)

// A spec is what a sandbox is; it does not change after creation.
type spec struct {
	Version  int          `json:"version"`
	Name     string       `json:"name"`
	Created  time.Time    `json:"created"`
	Pool     netip.Prefix `json:"pool"`
	Range    netip.Prefix `json:"range"`
	Internet bool         `json:"internet,omitempty"`
	// AuthorizedKey may log in as root on every machine.
	AuthorizedKey string        `json:"authorizedKey"`
	Machines      []machineSpec `json:"machines"`
}

type machineSpec struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	// MachineID goes to /etc/machine-id; 32 hexadecimal digits.
	MachineID string `json:"machineID"`
	// HostKey is the public half: "ssh-ed25519 AAAA…".
	HostKey string `json:"hostKey"`
	// Disk is the size of the disk in bytes.
	Disk int64 `json:"disk"`
}

// A runState is who runs a machine. It may be stale; alive tells.
type runState struct {
	Supervisor process.Process `json:"supervisor"`
	Init       process.Process `json:"init"`
	Boots      int             `json:"boots"` // since the supervisor started
}

// readJSON reads a file; one that is missing leaves v as it is.
func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file in one step.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(path, append(b, '\n'), 0o644)
}

func replaceFile(path string, b []byte, mode fs.FileMode) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
