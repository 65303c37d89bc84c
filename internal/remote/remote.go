// Package remote defines how the manager works on hosts: connect to a host, let its node
// helper check and apply operations, transfer blobs, and open connections from the host.
// Package sshx implements it over SSH, package local on this machine.
package remote

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"slipway.dev/slipway/internal/node/op"
)

// A Host is a machine with a running node helper. All methods can be called concurrently;
// batches run one after another. Errors of the connection are *Error. A lost connection
// is first dialled again for a limited time, and a batch is checked again before it
// continues.
type Host interface {
	// Name is the name of the host in the cluster.
	Name() string
	// Check reports what an apply would change. It changes nothing, and returns one
	// result for each operation, in order.
	Check(ctx context.Context, ops op.List) ([]op.Result, error)
	// Apply applies the operations in order, and stops at the first failure: the results
	// then end with that operation, with Status Failed. Each operation is checked again
	// on the host immediately before. Output and progress are sent to sink while the
	// batch runs, if sink is not nil.
	Apply(ctx context.Context, batch Batch, sink func(Progress)) ([]op.Result, error)
	// DialContext opens a connection from the host, so that the manager can reach an API
	// server that only hosts can reach.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	// Close stops the helper and closes the connection. Uninterruptible programs
	// continue.
	Close() error
}

// A Batch is a list of operations to apply, and their owner.
type Batch struct {
	// Operation and Step name the run and its task; they are used in the names of
	// transient units and in ledger entries. Only [a-z0-9.-].
	Operation string
	Step      string
	// Cluster owns the changes.
	Cluster string
	// Fence is the fencing number of the cluster lock: the helper rejects a number below
	// the highest one that it has seen. 0 is never rejected.
	Fence uint64
	Ops   op.List
}

// Progress is a report from the host while a batch runs.
type Progress struct {
	Op     int    // index into the batch
	Output []byte // output of a program, as it arrives
	// Done and Total are the bytes of a transfer, if Total is not 0.
	Done, Total int64
}

// A Blobs opens content by its digest, for hosts that lack it.
type Blobs interface {
	// OpenBlob opens the content at offset.
	OpenBlob(digest string, offset int64) (io.ReadCloser, error)
}

// A Lock is the part of the cluster lock on one host.
type Lock struct {
	Operation string `json:"operation"`
	Manager   string `json:"manager"` // ID of the Slipway installation that holds it
	Fence     uint64 `json:"fence"`
	// By describes the holder and the start time, for people.
	By string `json:"by,omitempty"`
	// Process distinguishes the holder from others with the same manager ID, such as
	// copies of its state.
	Process string `json:"process,omitempty"`
	// Server is the address of the management server that holds it, "" for the command line.
	Server string `json:"server,omitempty"`
	// Over, when the lock is taken, names a process of the same manager that has ended:
	// its lock is free at once. A stored lock does not have it.
	Over string `json:"over,omitempty"`
}

// A Manager manages a cluster also between operations, since a management server has held the lock.
type Manager struct {
	ID     string `json:"id"`
	Server string `json:"server,omitempty"` // its address, "" for the command line
	// Fence is the fencing number of the lock with which it began. Of several, the one with the highest number counts.
	Fence uint64 `json:"fence"`
}

// LockState is the state of the lock on a host.
type LockState struct {
	Held    bool   `json:"held"`
	Holder  Lock   `json:"holder"`
	Highest uint64 `json:"highest"` // highest fencing number seen
	// Manager manages the cluster also between operations; empty if no management server has held the lock.
	Manager Manager `json:"manager,omitzero"`
	// AgeSeconds is the time since the last heartbeat by the monotonic clock of the host;
	// a reboot makes the lock stale.
	AgeSeconds float64 `json:"ageSeconds"`
	// Stale reports whether there was no heartbeat for 60 s or a new boot, and no unit of
	// the holder's operation is running.
	Stale bool `json:"stale"`
	// Units lists the running transient units of the holder.
	Units []string `json:"units,omitempty"`
}

// A Locker is a host that can store a part of the cluster lock.
type Locker interface {
	// ReadLock returns the current lock.
	ReadLock(ctx context.Context) (LockState, error)
	// TakeLock writes the lock if its fencing number is above the highest one seen, and
	// the current lock is free, stale, held by the process l.Over of the same manager, or
	// breaking is true. Otherwise it returns the current state and false.
	TakeLock(ctx context.Context, l Lock, breaking bool) (LockState, bool, error)
	// Beat renews the heartbeat; it returns false if the lock is no longer l.
	Beat(ctx context.Context, l Lock) (bool, error)
	// ReleaseLock frees the lock if it is still l.
	ReleaseLock(ctx context.Context, l Lock) error
}

// A Command is a program of the user.
type Command struct {
	// Argv names the program, which is searched in the standard directories, and its
	// arguments; no shell is used.
	Argv []string `json:"argv,omitempty"`
	// User runs the program as this user, with the user's groups and home directory. ""
	// means root.
	User string `json:"user,omitempty"`
}

// A Copy is a copy in the protocol of package node/transfer.
type Copy struct {
	// Path is the path on the host; a relative path starts in the home directory of the
	// user.
	Path string `json:"path,omitempty"`
	// User reads and writes files with the permissions of this user; "" means root.
	User string `json:"user,omitempty"`
	// Send makes the host send Path; otherwise it receives content to Path.
	Send bool `json:"send,omitempty"`
	// Exact writes the content at Path although a directory exists there, which an
	// earlier attempt created.
	Exact bool `json:"exact,omitempty"`
}

// A Worker is a host that runs programs and copies files for the user, outside of cluster
// operations: nothing of it is recorded in the ledger.
type Worker interface {
	// Run runs a program to its end and returns its exit code, as a shell does: 127 means
	// that the program was not found, 128+n a signal. It runs once: a lost connection is
	// an error. in can be nil; out and errw are not written concurrently. When ctx ends,
	// the program is stopped.
	Run(ctx context.Context, c Command, in io.Reader, out, errw io.Writer) (int, error)
	// OpenCopy starts a copy. It ends with ctx at the latest.
	OpenCopy(ctx context.Context, c Copy) (net.Conn, error)
}

// A Shell is a login shell on a host, or one command that it runs. It does not need the
// helper, so it also works on a host where nothing else does.
type Shell struct {
	// Argv is the command; an empty Argv is the login shell.
	Argv     []string
	In       io.Reader
	Out, Err io.Writer
	// Terminal requests a terminal on the host; nil requests none.
	Terminal *Terminal
}

// A Terminal describes the terminal of the user.
type Terminal struct {
	Name          string // TERM
	Columns, Rows int
	// Resized receives new sizes: columns, rows.
	Resized <-chan [2]int
}

// A Login describes how a host is logged in to.
type Login struct {
	User    string
	Address string
	Port    int
	Via     []string   // the jump hosts, in order
	From    []Decision // the source of each setting
	ViaFrom []Decision // the same for the jump hosts: "bastion user"
	Local   bool       // this machine, without SSH
}

// A Decision names the source of a setting: the cluster file, a line of the SSH
// configuration, or the default.
type Decision struct{ Setting, By string }

// The sources of a setting that are not in the SSH configuration, for people.
const (
	ByClusterFile = "cluster file"
	ByDefault     = "default"
)

// String returns a text for people: "root@10.0.0.1 port 22 (user: default)".
func (l Login) String() string {
	if l.Local {
		return "this machine"
	}
	text := fmt.Sprintf("%s@%s port %d", l.User, l.Address, l.Port)
	if len(l.Via) > 0 {
		text += " through " + strings.Join(l.Via, ", ")
	}
	var from []string
	for _, s := range l.From {
		from = append(from, s.Setting+": "+s.By)
	}
	if len(from) > 0 {
		text += " (" + strings.Join(from, ", ") + ")"
	}
	return text
}

// An Error describes, for people, why a host cannot be reached or used.
type Error struct {
	Host   string
	Reason Reason
	Cause  string // "wrong password for root"
	Remedy string // what to do, one line
	Err    error
}

func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Cause
	}
	return e.Cause + "; " + e.Remedy
}

func (e *Error) Unwrap() error { return e.Err }

// A Reason is a stable name for the reason why a host cannot be used; it is also the ID
// in docs/guide/errors.md.
type Reason string

// The reasons.
const (
	Unreachable      Reason = "host-unreachable"
	AuthFailed       Reason = "ssh-auth-failed"
	ConfigUnusable   Reason = "ssh-config-unusable"
	HostKeyUnknown   Reason = "host-key-unknown"
	HostKeyChanged   Reason = "host-key-changed"
	KeyUnreadable    Reason = "ssh-key-unreadable"
	SecretUnreadable Reason = "secret-unreadable"
	SudoFailed       Reason = "sudo-failed"
	WrongArch        Reason = "wrong-architecture"
	NoExec           Reason = "no-exec-directory"
	HelperFailed     Reason = "helper-failed"
	ConnectionLost   Reason = "connection-lost"
	NoShell          Reason = "host-is-local"
)
