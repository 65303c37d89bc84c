// Package op is the vocabulary of node operations: typed pieces of host state,
// the same at both ends of the wire. A list of operations is a pure function
// of the cluster's spec, facts and values other tasks make; package
// internal/node/run carries them out on the host. This package is data: it
// does nothing to any machine and builds everywhere.
package op

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
)

// Kind names an operation on the wire and in plans; it never changes.
type Kind string

// An Op is one piece of host state.
type Op interface {
	// Kind is the operation's name in the vocabulary.
	Kind() Kind
	// Target is what the operation is about, unique within its kind on one
	// host: a path, a unit, a sysctl. Kind and Target identify an operation
	// in plans, ledger and events, and never hold a secret.
	Target() string
}

// File is a regular file with given content.
type File struct {
	Path    string      `json:"path"`
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode"` // permission bits; 0 means 0644
	Owner   string      `json:"owner,omitempty"`
	Group   string      `json:"group,omitempty"`
	// Secret keeps content out of diffs, plans, journals and logs.
	Secret bool `json:"secret,omitempty"`
	// UnlessServes is what the file is for: as long as that answers, it stays as it is.
	UnlessServes *Wait `json:"unlessServes,omitempty"`
	// Gate is what a change waits for. It must have come within its time.
	Gate *Wait `json:"gate,omitempty"`
}

// Dir is a directory, made with its parents. Where a link to a directory
// stands, that directory is meant, and the link stays.
type Dir struct {
	Path  string      `json:"path"`
	Mode  fs.FileMode `json:"mode"` // 0 means 0755
	Owner string      `json:"owner,omitempty"`
	Group string      `json:"group,omitempty"`
	// Exclusive says that all below Path is ours if we made Path: it is
	// removed with its content on restore. If Path was there and empty, but
	// for lost+found, its content goes and it stays, as long as it is still on
	// the same file system. If it had content, all goes that is new directly
	// in Path and in its directories by the names of Shared.
	Exclusive bool     `json:"exclusive,omitempty"`
	Shared    []string `json:"shared,omitempty"`
}

// Link is a symbolic link.
type Link struct {
	Path string `json:"path"`
	To   string `json:"to"`
}

// Absent says that nothing is at Path. What was there is kept by the ledger.
type Absent struct {
	Path string `json:"path"`
	// Recursive allows Path to be a directory that is not empty.
	Recursive bool `json:"recursive,omitempty"`
}

// Block is a set of marked lines in a file that belongs to others.
type Block struct {
	Path string `json:"path"`
	// Name marks the block: the lines stand between
	// "# BEGIN slipway <Name>" and "# END slipway <Name>".
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
	// Gate is what a change waits for. It must have come within its time.
	Gate *Wait `json:"gate,omitempty"`
}

// Sysctl is a set of kernel parameters, in force now and after a reboot.
type Sysctl struct {
	// File is where they are kept, below /etc/sysctl.d.
	File   string            `json:"file"`
	Values map[string]string `json:"values"`
}

// KernelModules are loaded now and after a reboot. A module that is built in
// counts as loaded.
type KernelModules struct {
	// File is where they are listed, below /etc/modules-load.d.
	File    string   `json:"file"`
	Modules []string `json:"modules"`
}

// SwapOff turns swap off now and takes its lines out of /etc/fstab.
type SwapOff struct{}

// Hostname sets the static and the live host name.
type Hostname struct {
	Name string `json:"name"`
}

// Timezone sets the system's time zone, such as "Europe/Berlin".
type Timezone struct {
	Name string `json:"name"`
}

// TimeSync has the host take its time from the given servers.
type TimeSync struct {
	Servers []string `json:"servers"`
}

// User is a system user without a login.
type User struct {
	Name string `json:"name"`
	Home string `json:"home,omitempty"`
}

// Blob names content by digest. Blobs are gzip or plain as their maker left
// them; Digest and Size are of the bytes as transferred.
type Blob struct {
	Digest string `json:"digest"` // "sha256:<hex>"
	Size   int64  `json:"size"`   // bytes
}

// FetchBlob has a blob in the host's blob store, /var/lib/slipway/blobs.
type FetchBlob struct {
	Blob
	// Name is for people, and the operation's target, so that it is known
	// before the digest is: "containerd 2.2.8".
	Name string `json:"name"`
}

// Unpack has members of a tar blob (plain or gzip) in a directory.
type Unpack struct {
	Blob
	// Name is for people, and part of the target.
	Name string `json:"name"`
	// Dir is where to unpack to.
	Dir string `json:"dir"`
	// Strip is a prefix of the members' names that is taken off; members
	// without it are left out. "usr/local/bin/" for example.
	Strip string `json:"strip,omitempty"`
	// Members, if any, are the only ones unpacked (names after Strip).
	Members []string `json:"members,omitempty"`
	// UnlessServes is what the members are for: as long as that answers, they stay as they
	// are.
	UnlessServes *Wait `json:"unlessServes,omitempty"`
	// Gate is what a change waits for. It must have come within its time.
	Gate *Wait `json:"gate,omitempty"`
}

// Image is a container image made of blobs.
type Image struct {
	// Ref is its full name: "registry.k8s.io/pause:3.10.2".
	Ref string `json:"ref"`
	// Manifest is the image manifest; the config and layers it names are in
	// Blobs.
	Manifest  Blob   `json:"manifest"`
	MediaType string `json:"mediaType"`
	Blobs     []Blob `json:"blobs"`
}

// ImportImages has images in containerd's k8s.io namespace, pinned against
// the kubelet's garbage collection; or in Docker, which cannot pin any.
type ImportImages struct {
	Images []Image `json:"images"`
	Docker bool    `json:"docker,omitempty"`
	// Ahead has no more than their content on the host, for an import that is to
	// come: the runtime need not be there yet.
	Ahead bool `json:"ahead,omitempty"`
}

// Target says whether they are imported.
func (o ImportImages) Target() string {
	if o.Ahead {
		return "content of images"
	}
	return "images"
}

// ReadFile answers with a file's content in Result.Output; a missing file is
// no error and gives no output (Result.Missing). It never changes anything.
type ReadFile struct {
	Path   string `json:"path"`
	Secret bool   `json:"secret,omitempty"`
}

// Facts answers with the host's facts as JSON (type Facts in facts.go) in
// Result.Output. It never changes anything.
type Facts struct {
	// Ports to look for listeners on, TCP and UDP, and Paths to report
	// presence of; a glob is present when it matches anything.
	Ports []int    `json:"ports,omitempty"`
	Paths []string `json:"paths,omitempty"`
	// Dirs are directories (existing or not) whose file system's free space
	// is wanted.
	Dirs []string `json:"dirs,omitempty"`
	// Names are looked for in the hosts file.
	Names []string `json:"names,omitempty"`
	// Contents are directories (existing or not) of which is wanted whether they
	// hold anything.
	Contents []string `json:"contents,omitempty"`
	// Units are names of units whose state is wanted, if they are there.
	Units []string `json:"units,omitempty"`
	// Reach are "host:port" to connect to.
	Reach []string `json:"reach,omitempty"`
}

// Status is the outcome of a check or apply.
type Status string

// The outcomes.
const (
	Unchanged Status = "unchanged" // the host is as described
	Changed   Status = "changed"   // check: would change; apply: has changed
	Failed    Status = "failed"
)

// A Result is what a check or an apply of one operation found or did.
type Result struct {
	Kind   Kind   `json:"kind"`
	Target string `json:"target"`
	Status Status `json:"status"`
	// Summary is one line for people: "create", "restart: config.toml
	// changed", "not checkable: always runs".
	Summary string `json:"summary,omitempty"`
	// Diff is a unified diff of text that is not secret, at most 64 KiB.
	Diff string `json:"diff,omitempty"`
	// Output is what the operation answers with (ReadFile, Facts, Exec).
	Output  []byte `json:"output,omitempty"`
	Missing bool   `json:"missing,omitempty"`
	// Secret says that Output must not be recorded.
	Secret bool   `json:"secret,omitempty"`
	Error  *Error `json:"error,omitempty"`
}

// An Error is a failed operation, in words for people.
type Error struct {
	// Reason is a stable word: "DiskFull", "CommandFailed", "Timeout",
	// "Interrupted", "Fenced", "BlobCorrupt", "Internal"…
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Detail is evidence, such as the last lines of a program's stderr.
	Detail string `json:"detail,omitempty"`
	// ExitCode is the program's, where one ran.
	ExitCode int `json:"exitCode,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// IDLedgerLost is the reason why a host that was changed cannot be put back:
// its ledger is gone or damaged.
const IDLedgerLost = "ledger-lost"

// IDUnmanaged is the reason why what runs on a host is left alone: nothing on
// the host says that it is ours.
const IDUnmanaged = "host-unmanaged"

// IDFenceUnreadable is the reason why nothing is changed on a host: it does not know
// any more which managers were displaced.
const IDFenceUnreadable = "fence-unreadable"

// Bool is for the optional fields of Unit.
func Bool(v bool) *bool { return &v }

// The vocabulary.
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

// A List is operations in order; it travels as JSON with each operation's
// kind beside it.
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

// UnmarshalJSON decodes what MarshalJSON made. An unknown kind or field is an
// error: the other end is of another version.
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

// DependsOn answers the files whose content an operation acts upon, so that
// a plan knows what an earlier change to one of them brings about.
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
	case File: // what an operation before makes another is put right by it
		return []string{o.Path}
	case PodRestart:
		return o.Files
	case Reload:
		return []string{o.File}
	case Renewal:
		if o.Due == DueForeign { // else what its authority signs is as good as it was
			return []string{o.CA}
		}
	}
	return nil
}
