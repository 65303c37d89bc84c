// Package op defines node operations: typed pieces of host state, the same at both ends
// of the connection. A list of operations is a pure function of the cluster's spec,
// facts, and values from other tasks. Package internal/node/executor runs them on the host.
// This package contains only data: it changes no machine, and builds on every platform.
package op

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Kind names an operation in the wire format and in plans; it never changes.
type Kind string

// An Op is one piece of host state.
type Op interface {
	// Kind is the name of the operation.
	Kind() Kind
	// Target is the subject of the operation, unique within its kind on one host: a path,
	// a unit, a sysctl. Kind and Target identify an operation in plans, the ledger and
	// events, and never contain a secret.
	Target() string
}

// Status is the result of a check or an apply.
type Status string

// The values of Status.
const (
	Unchanged Status = "unchanged" // the host is in the described state
	Changed   Status = "changed"   // check: would change; apply: has changed
	Failed    Status = "failed"
)

// A Result is the result of a check or an apply of one operation.
type Result struct {
	Kind   Kind   `json:"kind"`
	Target string `json:"target"`
	Status Status `json:"status"`
	// Summary is one line for people: "create", "restart: config.toml changed", "cannot
	// be checked: always runs".
	Summary string `json:"summary,omitempty"`
	// Diff is a unified diff of text that is not secret, at most 64 KiB.
	Diff string `json:"diff,omitempty"`
	// Output is the answer of the operation (ReadFile, Facts, Exec). The check of an Unpack
	// returns the only files that it changes, separated by NUL, if it knows them.
	Output  []byte `json:"output,omitempty"`
	Missing bool   `json:"missing,omitempty"`
	// Secret reports whether Output must not be saved.
	Secret bool   `json:"secret,omitempty"`
	Error  *Error `json:"error,omitempty"`
}

// An Error describes a failed operation for people.
type Error struct {
	// Reason is a stable word: "DiskFull", "CommandFailed", "Timeout",
	// "Interrupted", "Fenced", "BlobCorrupt", "Internal"…
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Detail is evidence, such as the last lines of a program's stderr.
	Detail string `json:"detail,omitempty"`
	// ExitCode is the exit code of the program, if one ran.
	ExitCode int `json:"exitCode,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// IDLedgerLost is the reason why a changed host cannot be restored: its ledger is missing
// or damaged.
const IDLedgerLost = "ledger-lost"

// IDUnmanaged is the reason why Slipway does not change the programs on a host: the host has
// no sign that Slipway installed it.
const IDUnmanaged = "host-unmanaged"

// IDFenceUnreadable is the reason why nothing is changed on a host: the host no longer
// knows which managers it must reject.
const IDFenceUnreadable = "fence-unreadable"

// A List is a list of operations in order. In JSON, each operation has its kind next to
// it.
type List []Op

// MarshalJSON encodes the list with each operation's kind.
func (l List) MarshalJSON() ([]byte, error) {
	out := make([]envelope, len(l))
	for i, o := range l {
		raw, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", o.Kind(), o.Target(), err)
		}
		out[i] = envelope{Kind: o.Kind(), Op: raw}
	}
	return json.Marshal(out)
}

// UnmarshalJSON decodes the output of MarshalJSON. An unknown kind or field is an error:
// the other end has another version.
func (l *List) UnmarshalJSON(data []byte) error {
	var in []envelope
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	out := make(List, len(in))
	for i, e := range in {
		dec, ok := decoders[e.Kind]
		if !ok {
			return fmt.Errorf("operation %d has the unknown kind %q", i, e.Kind)
		}
		o, err := dec(e.Op)
		if err != nil {
			return fmt.Errorf("decoding operation %d (%s): %w", i, e.Kind, err)
		}
		out[i] = o
	}
	*l = out
	return nil
}

type envelope struct {
	Kind Kind            `json:"kind"`
	Op   json.RawMessage `json:"op"`
}

var decoders = map[Kind]func(json.RawMessage) (Op, error){
	KindFile:                decode[File],
	KindDir:                 decode[Dir],
	KindLink:                decode[Link],
	KindAbsent:              decode[Absent],
	KindBlock:               decode[Block],
	KindSysctl:              decode[Sysctl],
	KindLimits:              decode[Limits],
	KindKernelModules:       decode[KernelModules],
	KindSwapOff:             decode[SwapOff],
	KindUnit:                decode[Unit],
	KindUnitStarted:         decode[UnitStarted],
	KindHostname:            decode[Hostname],
	KindTimezone:            decode[Timezone],
	KindTimeSync:            decode[TimeSync],
	KindUser:                decode[User],
	KindReboot:              decode[Reboot],
	KindFetchBlob:           decode[FetchBlob],
	KindUnpack:              decode[Unpack],
	KindImportImages:        decode[ImportImages],
	KindPrune:               decode[Prune],
	KindExec:                decode[Exec],
	KindWait:                decode[Wait],
	KindReadFile:            decode[ReadFile],
	KindFacts:               decode[Facts],
	KindReset:               decode[Reset],
	KindRevertStep:          decode[RevertStep],
	KindRestoreHost:         decode[RestoreHost],
	KindEtcdMember:          decode[EtcdMember],
	KindEtcdRemove:          decode[EtcdRemove],
	KindEtcdSnapshot:        decode[EtcdSnapshot],
	KindEtcdDefrag:          decode[EtcdDefrag],
	KindEtcdDowngrade:       decode[EtcdDowngrade],
	KindEtcdRestore:         decode[EtcdRestore],
	KindEtcdRestoreTest:     decode[EtcdRestoreTest],
	KindEtcdRecover:         decode[EtcdRecover],
	KindEtcdGet:             decode[EtcdGet],
	KindCertificate:         decode[Certificate],
	KindCertificateRequest:  decode[CertificateRequest],
	KindPodLogs:             decode[PodLogs],
	KindPodLog:              decode[PodLog],
	KindPodHosts:            decode[PodHosts],
	KindInspectCertificates: decode[InspectCertificates],
	KindRenewCertificate:    decode[RenewCertificate],
	KindStaticPodRestart:    decode[StaticPodRestart],
	KindTriggerReload:       decode[TriggerReload],
	KindBaselineFile:        decode[BaselineFile],
	KindRootOnly:            decode[RootOnly],
	KindQuery:               decode[Query],
	KindProxyChanges:        decode[ProxyChanges],
	KindInstallHelper:       decode[InstallHelper],
	KindKeyPair:             decode[KeyPair],
	KindKubeconfigCA:        decode[KubeconfigCA],
	KindRegistryServes:      decode[RegistryServes],
	KindPushImages:          decode[PushImages],
	KindHealthGate:          decode[HealthGate],
	KindListBackupCopies:    decode[ListBackupCopies],
}

func decode[T Op](raw json.RawMessage) (Op, error) {
	var o T
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return nil, err
	}
	return o, nil
}

// DependsOn returns the files whose content an operation depends on, so that a plan can
// show the consequences of an earlier change.
func DependsOn(o Op) []string {
	switch o := o.(type) {
	case Exec:
		return o.Inputs
	case EtcdMember:
		return o.Join.Inputs
	case Unit:
		return o.RestartOn
	case Absent:
		return []string{o.Path}
	case File: // a change by an earlier operation is repaired by it
		return []string{o.Path}
	case StaticPodRestart:
		return o.Files
	case TriggerReload:
		return []string{o.File}
	case RenewCertificate:
		if o.Due == DueForeign { // else the certificates that its CA signs are as good as before
			return []string{o.CA}
		}
	}
	return nil
}
