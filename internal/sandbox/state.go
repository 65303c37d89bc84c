package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"slipway.dev/slipway/internal/process"
)

// tmpPrefix begins the names of files and directories that are being written.
const tmpPrefix = ".tmp-"

// specVersion is the version of the state file of a sandbox.
const specVersion = 1

// Files of a sandbox, in its directory.
const (
	specFile       = "sandbox.json"
	keyFile        = "id_ed25519"
	knownHostsFile = "known_hosts"
)

// Files of a machine, in its directory below.
const (
	diskFile    = "disk.ext4"
	rootDir     = "root"       // where the mount namespace of the machine mounts the disk
	stateFile   = "state.json" // its supervisor and processes
	lockFile    = "lock"       // held by its supervisor
	logFile     = "log"        // its supervisor's
	hostKeyFile = "ssh_host_ed25519_key"
	cutFile     = "cut" // its cable is pulled
)

// A spec describes a sandbox; it does not change after creation.
type spec struct {
	Version  int          `json:"version"`
	Name     string       `json:"name"`
	Created  time.Time    `json:"created"`
	Pool     netip.Prefix `json:"pool"`
	Range    netip.Prefix `json:"range"`
	Internet bool         `json:"internet,omitempty"`
	// AuthorizedKey is accepted for the root login on every machine.
	AuthorizedKey string        `json:"authorizedKey"`
	Machines      []machineSpec `json:"machines"`
}

type machineSpec struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	// MachineID is the content of /etc/machine-id; 32 hexadecimal digits.
	MachineID string `json:"machineID"`
	// HostKey is the public key: "ssh-ed25519 AAAA…".
	HostKey string `json:"hostKey"`
	// Disk is the size of the disk in bytes.
	Disk int64 `json:"disk"`
}

var (
	machineIDRE = regexp.MustCompile(`^[0-9a-f]{32}$`)
	publicKeyRE = regexp.MustCompile(`^ssh-ed25519 [A-Za-z0-9+/]+=*$`)
)

// checkSpec checks a state file by the rules of create: its names become paths, and root
// works there.
func (s spec) checkSpec() error {
	key, comment, _ := strings.Cut(strings.TrimPrefix(s.AuthorizedKey, "ssh-ed25519 "), " ")
	switch {
	case s.Version != specVersion:
		return fmt.Errorf("its state file has the unknown version %d", s.Version)
	case !nameRE.MatchString(s.Name):
		return fmt.Errorf("%q is not a valid sandbox name", s.Name)
	case !s.Range.IsValid() && len(s.Machines) == 0:
		return nil // a creation that was killed before it claimed a range
	case poolProblem(s.Pool) != "":
		return errors.New(poolProblem(s.Pool))
	case s.Range.Bits() != rangeBits || s.Range != s.Range.Masked() || !s.Pool.Overlaps(s.Range):
		return fmt.Errorf("range %s is not part of %s", s.Range, s.Pool)
	case !publicKeyRE.MatchString("ssh-ed25519 "+key) || !nameRE.MatchString(comment):
		return fmt.Errorf("%q is not a key", s.AuthorizedKey)
	case len(s.Machines) > maxMachines:
		return fmt.Errorf("%d machines", len(s.Machines))
	}
	names, addresses := map[string]bool{}, map[netip.Addr]bool{}
	for _, m := range s.Machines {
		if err := m.checkSpec(s.Range); err != nil {
			return fmt.Errorf("machine %q: %w", m.Name, err)
		}
		if names[m.Name] || addresses[m.Address] {
			return fmt.Errorf("machine %q: its name or address is used more than once", m.Name)
		}
		names[m.Name], addresses[m.Address] = true, true
	}
	return nil
}

func (m machineSpec) checkSpec(in netip.Prefix) error {
	switch made := m.HostKey != ""; {
	case !nameRE.MatchString(m.Name):
		return errors.New("the name is invalid")
	case !in.Contains(m.Address) || m.Address.As4()[3] < 2 || int(m.Address.As4()[3]) > maxMachines+1:
		return fmt.Errorf("address %s is not in %s", m.Address, in)
	case !made: // a creation that was killed before it created this machine
		return nil
	case !publicKeyRE.MatchString(m.HostKey):
		return fmt.Errorf("%q is not a key", m.HostKey)
	case !machineIDRE.MatchString(m.MachineID):
		return fmt.Errorf("%q is not a machine id", m.MachineID)
	case m.Disk < minDisk:
		return fmt.Errorf("a disk of %d MiB", m.Disk>>20)
	}
	return nil
}

// A runState has the processes of a machine. It can be stale; alive checks it.
type runState struct {
	Supervisor process.Process `json:"supervisor"`
	Init       process.Process `json:"init"`
	Boots      int             `json:"boots"` // since the supervisor started
}

// readJSON reads a file; a missing one leaves v unchanged.
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

// writeJSON replaces a file atomically.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(path, append(b, '\n'), 0o644)
}

func replaceFile(path string, b []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), tmpPrefix)
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
