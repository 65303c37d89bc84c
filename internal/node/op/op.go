// Package op defines node operations: typed pieces of host state, the same at both ends
// of the connection. A list of operations is a pure function of the cluster's spec,
// facts, and values from other tasks. Package internal/node/executor runs them on the host.
// This package contains only data: it changes no machine, and builds on every platform.
package op

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
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

// File is a regular file with this content.
type File struct {
	Path    string      `json:"path"`
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode"` // permission bits; 0 means 0644
	Owner   string      `json:"owner,omitempty"`
	Group   string      `json:"group,omitempty"`
	// Secret keeps content out of diffs, plans, journals and logs.
	Secret bool `json:"secret,omitempty"`
	// UnlessServes is the purpose of the file: as long as it responds, the file is not
	// changed.
	UnlessServes *Wait `json:"unlessServes,omitempty"`
	// Gate must respond before a change, within its timeout.
	Gate *Wait `json:"gate,omitempty"`
}

// Dir is a directory, created with its parents. If its path is a symbolic link to a
// directory, Dir means that directory, and the link is kept.
type Dir struct {
	Path  string      `json:"path"`
	Mode  fs.FileMode `json:"mode"` // 0 means 0755
	Owner string      `json:"owner,omitempty"`
	Group string      `json:"group,omitempty"`
	// Exclusive reports whether everything below Path belongs to Slipway if Slipway
	// created Path: a restore removes it with its content. If Path existed and was empty
	// except for lost+found, a restore removes its content and keeps Path, as long as it
	// is on the same file system. If it had content, a restore removes everything new
	// directly in Path and in its directories with the names of Shared.
	Exclusive bool     `json:"exclusive,omitempty"`
	Shared    []string `json:"shared,omitempty"`
}

// Link is a symbolic link.
type Link struct {
	Path string `json:"path"`
	To   string `json:"to"`
}

// Absent removes Path. The ledger keeps what existed there.
type Absent struct {
	Path string `json:"path"`
	// Recursive allows Path to be a directory that is not empty.
	Recursive bool `json:"recursive,omitempty"`
}

// Block is a set of marked lines in a file of other software.
type Block struct {
	Path string `json:"path"`
	// Name marks the block: the lines are between "# BEGIN slipway <Name>" and "# END
	// slipway <Name>".
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
	// Gate must respond before a change, within its timeout.
	Gate *Wait `json:"gate,omitempty"`
}

// Sysctl is a set of kernel parameters, in force now and after a reboot.
type Sysctl struct {
	// File is the file for them, below /etc/sysctl.d.
	File   string            `json:"file"`
	Values map[string]string `json:"values"`
}

// KernelModules are loaded now and after a reboot. A built-in module counts as loaded.
type KernelModules struct {
	// File is the file for the list, below /etc/modules-load.d.
	File    string   `json:"file"`
	Modules []string `json:"modules"`
}

// SwapOff turns swap off now and removes its lines from /etc/fstab.
type SwapOff struct{}

// Hostname sets the static and the current host name.
type Hostname struct {
	Name string `json:"name"`
}

// Timezone sets the system's time zone, such as "Europe/Berlin".
type Timezone struct {
	Name string `json:"name"`
}

// TimeSync makes the host use these time servers.
type TimeSync struct {
	Servers []string `json:"servers"`
}

// User is a system user without a login.
type User struct {
	Name string `json:"name"`
	Home string `json:"home,omitempty"`
}

// Blob identifies content by its digest. A blob is compressed with gzip or plain, as its
// producer created it; Digest and Size refer to the transferred bytes.
type Blob struct {
	Digest string `json:"digest"` // "sha256:<hex>"
	Size   int64  `json:"size"`   // bytes
}

// FetchBlob puts a blob into the host's blob store, /var/lib/slipway/blobs.
type FetchBlob struct {
	Blob
	// Name describes the blob for people. It is the target of the operation, because it
	// is known before the digest: "containerd 2.2.8".
	Name string `json:"name"`
}

// Unpack extracts files of a tar blob (plain or gzip) into a directory.
type Unpack struct {
	Blob
	// Name describes the content for people, and is part of the target.
	Name string `json:"name"`
	// Dir is the directory to extract to.
	Dir string `json:"dir"`
	// Strip is a prefix that is removed from the file names, such as "usr/local/bin/";
	// files without it are skipped.
	Strip string `json:"strip,omitempty"`
	// Members, if not empty, limits the extracted files (names after Strip).
	Members []string `json:"members,omitempty"`
	// UnlessServes is the purpose of the files: as long as it responds, they are not
	// changed.
	UnlessServes *Wait `json:"unlessServes,omitempty"`
	// Gate must respond before a change, within its timeout.
	Gate *Wait `json:"gate,omitempty"`
}

// Image is a container image that consists of blobs.
type Image struct {
	// Ref is the full name: "registry.k8s.io/pause:3.10.2".
	Ref string `json:"ref"`
	// Manifest is the image manifest; Blobs has its config and layers.
	Manifest  Blob   `json:"manifest"`
	MediaType string `json:"mediaType"`
	Blobs     []Blob `json:"blobs"`
}

// ImportImages imports images into containerd's k8s.io namespace, pinned against the
// garbage collection of the kubelet; or into Docker, which cannot pin images.
type ImportImages struct {
	Images []Image `json:"images"`
	Docker bool    `json:"docker,omitempty"`
	// Ahead only fetches their content, for a later import: the runtime does not have to
	// exist yet.
	Ahead bool `json:"ahead,omitempty"`
}

// Target depends on whether the images are imported.
func (o ImportImages) Target() string {
	if o.Ahead {
		return "content of images"
	}
	return "images"
}

// ReadFile returns the content of a file in Result.Output. A missing file is not an error
// and gives no output (Result.Missing). It never changes anything.
type ReadFile struct {
	Path   string `json:"path"`
	Secret bool   `json:"secret,omitempty"`
}

// Facts returns the facts of the host as JSON (type HostFacts) in Result.Output. It never
// changes anything.
type Facts struct {
	// Ports lists ports to check for listeners, TCP and UDP. Paths lists paths whose
	// presence is reported; a glob is present if it matches anything.
	Ports []int    `json:"ports,omitempty"`
	Paths []string `json:"paths,omitempty"`
	// Dirs lists directories (existing or not) whose free space is reported.
	Dirs []string `json:"dirs,omitempty"`
	// Names lists names to find in the hosts file.
	Names []string `json:"names,omitempty"`
	// Contents lists directories (existing or not) to check for content.
	Contents []string `json:"contents,omitempty"`
	// Units lists units whose state is reported, if they exist.
	Units []string `json:"units,omitempty"`
	// Reach lists "host:port" addresses to connect to.
	Reach []string `json:"reach,omitempty"`
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
	// Output is the answer of the operation (ReadFile, Facts, Exec).
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

// IDUnmanaged is the reason why Slipway does not change what runs on a host: the host has
// no sign that Slipway installed it.
const IDUnmanaged = "host-unmanaged"

// IDFenceUnreadable is the reason why nothing is changed on a host: the host no longer
// knows which managers it must reject.
const IDFenceUnreadable = "fence-unreadable"

// Bool returns a pointer to v, for the optional fields of Unit.
func Bool(v bool) *bool { return &v }

// The kinds.
const (
	KindFile          Kind = "file"
	KindDir           Kind = "dir"
	KindLink          Kind = "link"
	KindAbsent        Kind = "absent"
	KindBlock         Kind = "block"
	KindSysctl        Kind = "sysctl"
	KindKernelModules Kind = "kernel-modules"
	KindSwapOff       Kind = "swap-off"
	KindUnit          Kind = "unit"
	KindUnitStarted   Kind = "unit-started"
	KindHostname      Kind = "hostname"
	KindTimezone      Kind = "timezone"
	KindTimeSync      Kind = "time-sync"
	KindUser          Kind = "user"
	KindFetchBlob     Kind = "fetch-blob"
	KindUnpack        Kind = "unpack"
	KindImportImages  Kind = "import-images"
	KindExec          Kind = "exec"
	KindWait          Kind = "wait"
	KindReadFile      Kind = "read-file"
	KindFacts         Kind = "facts"
	KindReset         Kind = "reset"
	KindPutBack       Kind = "put-back"
	KindRestore       Kind = "restore"
	KindEtcdMember    Kind = "etcd-member"
	KindCertificate   Kind = "certificate"
	KindPodHosts      Kind = "pod-hosts"
)

func (File) Kind() Kind          { return KindFile }
func (Dir) Kind() Kind           { return KindDir }
func (Link) Kind() Kind          { return KindLink }
func (Absent) Kind() Kind        { return KindAbsent }
func (Block) Kind() Kind         { return KindBlock }
func (Sysctl) Kind() Kind        { return KindSysctl }
func (KernelModules) Kind() Kind { return KindKernelModules }
func (SwapOff) Kind() Kind       { return KindSwapOff }
func (Unit) Kind() Kind          { return KindUnit }
func (UnitStarted) Kind() Kind   { return KindUnitStarted }
func (Hostname) Kind() Kind      { return KindHostname }
func (Timezone) Kind() Kind      { return KindTimezone }
func (TimeSync) Kind() Kind      { return KindTimeSync }
func (User) Kind() Kind          { return KindUser }
func (FetchBlob) Kind() Kind     { return KindFetchBlob }
func (Unpack) Kind() Kind        { return KindUnpack }
func (ImportImages) Kind() Kind  { return KindImportImages }
func (Exec) Kind() Kind          { return KindExec }
func (Wait) Kind() Kind          { return KindWait }
func (ReadFile) Kind() Kind      { return KindReadFile }
func (Facts) Kind() Kind         { return KindFacts }
func (Reset) Kind() Kind         { return KindReset }
func (PutBack) Kind() Kind       { return KindPutBack }
func (Restore) Kind() Kind       { return KindRestore }
func (EtcdMember) Kind() Kind    { return KindEtcdMember }
func (Certificate) Kind() Kind   { return KindCertificate }
func (PodHosts) Kind() Kind      { return KindPodHosts }

func (o File) Target() string          { return o.Path }
func (o Dir) Target() string           { return o.Path }
func (o Link) Target() string          { return o.Path }
func (o Absent) Target() string        { return o.Path }
func (o Block) Target() string         { return o.Path + "#" + o.Name }
func (o Sysctl) Target() string        { return o.File }
func (o KernelModules) Target() string { return o.File }
func (SwapOff) Target() string         { return "swap" }
func (o Unit) Target() string          { return o.Name }
func (o UnitStarted) Target() string   { return o.Name }
func (Hostname) Target() string        { return "hostname" }
func (Timezone) Target() string        { return "timezone" }
func (TimeSync) Target() string        { return "time-sync" }
func (o User) Target() string          { return o.Name }
func (o FetchBlob) Target() string     { return o.Name }
func (o Unpack) Target() string        { return o.Name + " in " + o.Dir }
func (o Exec) Target() string          { return o.Name }
func (o Wait) Target() string {
	return o.TCP + o.HTTP + o.Path + o.Ended + o.Certificate + o.Name + o.Container
}
func (o ReadFile) Target() string    { return o.Path }
func (Facts) Target() string         { return "facts" }
func (Reset) Target() string         { return "kubernetes" }
func (o PutBack) Target() string     { return o.Step }
func (Restore) Target() string       { return "ledger" }
func (o EtcdMember) Target() string  { return o.Name }
func (o Certificate) Target() string { return o.Cert }
func (o PodHosts) Target() string    { return o.Name }

// A List is a list of operations in order. In JSON, each operation has its kind next to
// it.
type List []Op

type envelope struct {
	Kind Kind            `json:"kind"`
	Op   json.RawMessage `json:"op"`
}

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

var decoders = map[Kind]func(json.RawMessage) (Op, error){
	KindFile:               decode[File],
	KindDir:                decode[Dir],
	KindLink:               decode[Link],
	KindAbsent:             decode[Absent],
	KindBlock:              decode[Block],
	KindSysctl:             decode[Sysctl],
	KindKernelModules:      decode[KernelModules],
	KindSwapOff:            decode[SwapOff],
	KindUnit:               decode[Unit],
	KindUnitStarted:        decode[UnitStarted],
	KindHostname:           decode[Hostname],
	KindTimezone:           decode[Timezone],
	KindTimeSync:           decode[TimeSync],
	KindUser:               decode[User],
	KindFetchBlob:          decode[FetchBlob],
	KindUnpack:             decode[Unpack],
	KindImportImages:       decode[ImportImages],
	KindRetire:             decode[Retire],
	KindExec:               decode[Exec],
	KindWait:               decode[Wait],
	KindReadFile:           decode[ReadFile],
	KindFacts:              decode[Facts],
	KindReset:              decode[Reset],
	KindPutBack:            decode[PutBack],
	KindRestore:            decode[Restore],
	KindEtcdMember:         decode[EtcdMember],
	KindEtcdRemove:         decode[EtcdRemove],
	KindEtcdSnapshot:       decode[EtcdSnapshot],
	KindEtcdDefrag:         decode[EtcdDefrag],
	KindEtcdDowngrade:      decode[EtcdDowngrade],
	KindEtcdRestore:        decode[EtcdRestore],
	KindEtcdDrill:          decode[EtcdDrill],
	KindEtcdSalvage:        decode[EtcdSalvage],
	KindEtcdValues:         decode[EtcdValues],
	KindCertificate:        decode[Certificate],
	KindCertificateRequest: decode[CertificateRequest],
	KindPodLogs:            decode[PodLogs],
	KindPodLog:             decode[PodLog],
	KindPodHosts:           decode[PodHosts],
	KindCertificates:       decode[Certificates],
	KindRenewal:            decode[Renewal],
	KindPodRestart:         decode[PodRestart],
	KindReload:             decode[Reload],
	KindKept:               decode[Kept],
	KindPrivate:            decode[Private],
	KindAsk:                decode[Ask],
	KindProxyChanges:       decode[ProxyChanges],
	KindSelf:               decode[Self],
	KindKeyPair:            decode[KeyPair],
	KindKubeconfigCA:       decode[KubeconfigCA],
	KindRegistryServes:     decode[RegistryServes],
	KindPushImages:         decode[PushImages],
	KindServing:            decode[Serving],
	KindCopies:             decode[Copies],
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
	case PodRestart:
		return o.Files
	case Reload:
		return []string{o.File}
	case Renewal:
		if o.Due == DueForeign { // else the certificates that its CA signs are as good as before
			return []string{o.CA}
		}
	}
	return nil
}
