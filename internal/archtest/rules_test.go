package archtest

// A rule lists the packages of this module that one package may import: every
// package of a lower layer, its own children, and the packages in may. If
// exactly is true, it may import only the packages in may. A package whose own
// rule is exact is imported only by packages that list it.
type rule struct {
	layer   int
	pkg     string
	may     []string // a path, or a tree: "internal/x/..."
	exactly bool
	why     string
}

var rules = []rule{
	{layer: 0, pkg: "api/v1alpha1", why: "others use the types without the program"},
	{layer: 0, pkg: "api/crds", why: "definitions of the types, for every API server"},
	{layer: 0, pkg: "api/roles", why: "the rights of users, for every API server"},
	{layer: 0, pkg: "api/policies", why: "admission policies for the types, for every API server"},
	{
		layer: 0, pkg: "api/crds/crdstest", may: []string{"api/v1alpha1", "internal/testutil/definition"},
		why: "objects that follow or break the definitions, for tests; links into no program",
	},
	{layer: 0, pkg: "images", exactly: true, why: "sources of our images, as text"},
	{layer: 0, pkg: "images/echo", exactly: true, why: "compiled into an image from the standard library alone"},
	{layer: 0, pkg: "images/pause", exactly: true, why: "compiled into an image from the standard library alone"},
	{layer: 0, pkg: "images/probe", exactly: true, why: "compiled into an image from the standard library alone"},
	{layer: 0, pkg: "images/updater", exactly: true, why: "compiled into an image from client-go alone"},
	{layer: 0, pkg: "internal/version", why: "which build this is; knows nothing"},
	{layer: 0, pkg: "internal/diag", why: "what is wrong, where, and what to do"},
	{
		layer: 0, pkg: "internal/diag/messages", exactly: true, may: []string{"api/v1alpha1"},
		why: "the explanation of every message id, for docs/guide/errors.md; links into no program",
	},
	{
		layer: 0, pkg: "internal/diag/errorcode", may: []string{"api/v1alpha1", "internal/node/op"},
		why: "the error code of a failure: by its id or reason, or by the kind of its error",
	},
	{
		layer: 0, pkg: "internal/fileowner", may: []string{"internal/fsync", "internal/safefile"},
		why: "whose files become, by number; knows no place",
	},
	{layer: 0, pkg: "internal/process", may: []string{"internal/bounded"}, why: "processes of this machine, by number and start"},
	{layer: 0, pkg: "internal/testutil/requireroot", why: "what tests need of who runs them; links into no program"},
	{
		layer: 0, pkg: "internal/testutil/smalldisk", may: []string{"internal/testutil/requireroot"},
		why: "small disks of tests; links into no program",
	},
	{
		layer: 0, pkg: "internal/testutil/definition", exactly: true,
		why: "checks objects as an API server does, for tests; links into no program",
	},
	{layer: 0, pkg: "internal/testutil/faultproxy", may: []string{"internal/bounded"}, why: "faults of an API server, for tests"},
	{layer: 0, pkg: "internal/testutil/racesample", exactly: true, why: "which tests the race detector gets; links into no program"},
	{layer: 0, pkg: "internal/testutil/memdir", exactly: true, why: "temporary directories of tests, in memory; links into no program"},
	{layer: 0, pkg: "internal/bounded", why: "bytes that others have written, up to a limit; the helper links it too"},
	{layer: 0, pkg: "internal/registryname", may: []string{"internal/spec/hostaddress"}, why: "which names are of one registry; asks none"},
	{
		layer: 0, pkg: "internal/ocitransport", exactly: true, may: []string{"internal/registryname"},
		why: "which requests may be sent to a registry; knows no bundle and no chart",
	},
	{layer: 0, pkg: "internal/fsync", why: "files that survive a power loss; the helper links it too"},
	{
		layer: 0, pkg: "internal/safefile", may: []string{"internal/bounded", "internal/fsync"},
		why: "files by path in directories of other users, as root; knows no place",
	},
	{
		layer: 0, pkg: "internal/privatedir", may: []string{"internal/bounded", "internal/diag"},
		why: "private directories in memory, removed also after a crash; knows no content",
	},
	{layer: 0, pkg: "internal/bytesize", why: "numbers of bytes for people; the helper links it too"},
	{layer: 0, pkg: "internal/exact", why: "text with any bytes, in JSON; the helper links it too"},
	{layer: 0, pkg: "internal/testutil/golden", why: "what tests hold against files; links into no program"},
	{layer: 0, pkg: "internal/graph", why: "a generic DAG"},
	{layer: 0, pkg: "internal/secret", may: []string{"api/v1alpha1"}, why: "reads the secrets that the types name"},
	{layer: 0, pkg: "internal/node/op", why: "the vocabulary is data, the same at both ends of the wire"},
	{layer: 0, pkg: "internal/event", may: []string{"api/v1alpha1", "internal/node/op"}, why: "events name operations and error codes"},
	{
		layer: 0, pkg: "internal/lifecycle/operation", may: []string{"api/v1alpha1"},
		why: "what is true of each kind of operation; plans, phases and prechecks ask it too",
	},
	{
		layer: 0, pkg: "internal/plan", may: []string{"internal/node/op", "internal/bytesize", "internal/lifecycle/operation"},
		why: "plans are made of operations",
	},
	{layer: 0, pkg: "internal/release", may: []string{"internal/bounded", "internal/diag"}, why: "which versions go together is data"},
	{layer: 0, pkg: "internal/release/settings", why: "which settings components have is data"},
	{
		layer: 0, pkg: "internal/spec",
		may: []string{
			"api/v1alpha1", "internal/diag", "internal/bounded", "internal/registryname", "internal/release",
			"internal/release/settings", "internal/secret", "internal/spec/componentargs",
			"internal/spec/hostaddress", "internal/spec/hostroles",
		}, why: "from a file to types: pure, no hosts",
	},
	{
		layer: 0, pkg: "internal/spec/sample", may: []string{"api/v1alpha1", "internal/spec"},
		why: "a cluster file for a start is text that the checks accept",
	},
	{layer: 0, pkg: "internal/spec/hostaddress", why: "which texts can be the address of a host; resolves no name"},
	{layer: 0, pkg: "internal/spec/hostroles", may: []string{"api/v1alpha1"}, why: "which programs listen where follows from a cluster file"},
	{
		layer: 0, pkg: "internal/spec/componentargs", may: []string{"internal/release/settings"},
		why: "which arguments Slipway sets is data",
	},
	{
		layer: 0, pkg: "internal/spec/hostselector", may: []string{"api/v1alpha1", "internal/diag", "internal/spec"},
		why: "which hosts a user names; reaches none",
	},
	{
		layer: 0, pkg: "internal/spec/apicheck",
		may: []string{"api/v1alpha1", "internal/bounded", "internal/diag", "internal/spec", "internal/spec/yamlfile"},
		why: "which objects a server accepts from its users: pure, reads no file and resolves no name",
	},
	{
		layer: 0, pkg: "internal/filesfrom",
		may: []string{
			"api/v1alpha1", "internal/diag", "internal/privatedir", "internal/secret", "internal/spec", "internal/spec/apicheck",
		},
		why: "the files of a Cluster object, through a reader; knows no client of the API",
	},
	{
		layer: 0, pkg: "internal/hostclaims",
		may: []string{"api/v1alpha1", "internal/diag", "internal/spec", "internal/spec/yamlfile"},
		why: "which Cluster objects name which hosts; knows no client of the API",
	},
	{
		layer: 0, pkg: "internal/admission",
		may: []string{"api/v1alpha1", "internal/diag", "internal/hostclaims", "internal/spec", "internal/spec/apicheck"},
		why: "which changes of objects an API accepts: reads the objects, and reaches nothing",
	},
	{layer: 0, pkg: "internal/spec/limits", why: "which limits of logins a file can set; knows no Cluster"},
	{
		layer: 0, pkg: "internal/spec/yamlfile", may: []string{"internal/diag"},
		why: "strict YAML with the place of every field; knows no Cluster",
	},
	{
		layer: 0, pkg: "internal/spec/kubekey",
		may: []string{"api/v1alpha1", "internal/diag", "internal/registryname", "internal/spec", "internal/spec/yamlfile"},
		why: "from another program's file to ours: pure, no hosts",
	},
	{
		layer: 0, pkg: "internal/spec/live", may: []string{"api/v1alpha1", "internal/diag", "internal/spec", "internal/spec/yamlfile"},
		why: "from what a cluster says of itself to a file: pure, asks nothing",
	},
	{
		layer: 0, pkg: "internal/status", may: []string{
			"api/v1alpha1", "internal/diag/errorcode", "internal/event", "internal/plan", "internal/lifecycle/operation",
		},
		why: "a pure function of plan and events",
	},

	{
		layer: 1, pkg: "internal/node/atomicfile", exactly: true, may: []string{"internal/bounded", "internal/fsync"},
		why: "links into the node helper: small, knows files alone",
	},
	{
		layer: 1, pkg: "internal/node/ledger", exactly: true,
		may: []string{"internal/bounded", "internal/exact", "internal/fsync", "internal/node/op", "internal/node/atomicfile"},
		why: "links into the node helper: what was here before us",
	},
	{
		layer: 1, pkg: "internal/node/lock", exactly: true, may: []string{"internal/bounded", "internal/node/atomicfile"},
		why: "links into the node helper: the part of the lock that one host keeps",
	},
	{
		layer: 1, pkg: "internal/pki", exactly: true, may: []string{"internal/node/op"},
		why: "links into the node helper: certificates and keys as text; touches no file",
	},
	{
		layer: 1, pkg: "internal/kubeletcsr", exactly: true, may: []string{"internal/node/op", "internal/pki"},
		why: "links into the node helper: which requests of kubelets may be approved; sends no request",
	},
	{
		layer: 1, pkg: "internal/pki/pkitest", may: []string{"internal/pki"},
		why: "authorities and certificates for tests; links into no program",
	},
	{
		layer: 1, pkg: "internal/node/executor/host", exactly: true,
		may: []string{
			"internal/bounded", "internal/bytesize", "internal/node/atomicfile", "internal/node/ledger",
			"internal/node/lock", "internal/node/op",
		},
		why: "one host during a list of operations: files, programs, state; each operation depends on it alone",
	},
	{
		layer: 1, pkg: "internal/node/executor/netfilter", exactly: true,
		why: "the packet filter, in the words of the kernel; knows no operation",
	},
	{
		layer: 1, pkg: "internal/node/executor/process", exactly: true,
		may: []string{"internal/bounded", "internal/node/atomicfile", "internal/node/executor/host"},
		why: "processes of pods on a host; ends none by name",
	},
	{
		layer: 1, pkg: "internal/node/executor/systemctl", exactly: true,
		may: []string{
			"internal/bounded", "internal/node/atomicfile", "internal/node/executor/host",
			"internal/node/op",
		},
		why: "queries the state of units; changes no unit",
	},
	{
		layer: 1, pkg: "internal/node/executor/health", exactly: true,
		may: []string{
			"internal/bounded", "internal/node/executor/host", "internal/node/executor/process",
			"internal/node/executor/systemctl", "internal/node/op", "internal/pki",
		},
		why: "whether a component responds; operations wait for it",
	},
	{
		layer: 1, pkg: "internal/node/executor/hostfs", exactly: true,
		may: []string{
			"internal/bounded", "internal/bytesize", "internal/fsync", "internal/node/atomicfile",
			"internal/node/executor/health", "internal/node/executor/host", "internal/node/ledger",
			"internal/node/op",
		},
		why: "files, blobs and unpacked archives on a host",
	},
	{
		layer: 1, pkg: "internal/node/executor/systemd", exactly: true,
		may: []string{
			"internal/bounded", "internal/node/atomicfile", "internal/node/executor/health",
			"internal/node/executor/host", "internal/node/executor/systemctl", "internal/node/ledger",
			"internal/node/op",
		},
		why: "units of a host, and whether they are healthy after a restart",
	},
	{
		layer: 1, pkg: "internal/node/executor/system", exactly: true,
		may: []string{
			"internal/bounded", "internal/node/atomicfile", "internal/node/executor/host",
			"internal/node/executor/hostfs", "internal/node/executor/systemctl",
			"internal/node/executor/systemd", "internal/node/ledger", "internal/node/op",
		},
		why: "settings of the operating system",
	},
	{
		layer: 1, pkg: "internal/node/executor/program", exactly: true,
		may: []string{
			"internal/bounded", "internal/exact", "internal/fsync", "internal/node/atomicfile",
			"internal/node/executor/health", "internal/node/executor/host", "internal/node/executor/hostfs",
			"internal/node/executor/systemctl", "internal/node/op",
		},
		why: "programs of a step, also in transient units",
	},
	{
		layer: 1, pkg: "internal/node/executor/pods", exactly: true,
		may: []string{
			"internal/bounded", "internal/node/executor/health", "internal/node/executor/host",
			"internal/node/executor/process", "internal/node/executor/program", "internal/node/op",
		},
		why: "static pods and logs of pods on a host",
	},
	{
		layer: 1, pkg: "internal/node/executor/images", exactly: true,
		may: []string{
			"internal/bounded", "internal/bytesize", "internal/node/atomicfile",
			"internal/node/executor/health", "internal/node/executor/host", "internal/node/executor/hostfs",
			"internal/node/executor/process", "internal/node/executor/program", "internal/node/op",
		},
		why: "images of container runtimes and registries",
	},
	{
		layer: 1, pkg: "internal/node/executor/certs", exactly: true,
		may: []string{
			"internal/bounded", "internal/kubeletcsr", "internal/node/atomicfile",
			"internal/node/executor/host", "internal/node/executor/hostfs",
			"internal/node/executor/systemctl", "internal/node/ledger", "internal/node/op", "internal/pki",
		},
		why: "certificates and keys of a host",
	},
	{
		layer: 1, pkg: "internal/node/executor/etcd", exactly: true,
		may: []string{
			"internal/bounded", "internal/bytesize", "internal/node/atomicfile",
			"internal/node/executor/health", "internal/node/executor/host", "internal/node/executor/hostfs",
			"internal/node/executor/process", "internal/node/executor/program",
			"internal/node/executor/systemctl", "internal/node/executor/systemd", "internal/node/op",
		},
		why: "the etcd member of a host, its data and snapshots",
	},
	{
		layer: 1, pkg: "internal/node/executor/facts", exactly: true,
		may: []string{
			"internal/bounded", "internal/node/atomicfile", "internal/node/executor/health",
			"internal/node/executor/host", "internal/node/executor/hostfs",
			"internal/node/executor/netfilter", "internal/node/executor/system",
			"internal/node/executor/systemctl", "internal/node/ledger", "internal/node/op",
		},
		why: "reads a host and changes nothing",
	},
	{
		layer: 1, pkg: "internal/node/executor/reset", exactly: true,
		may: []string{
			"internal/bounded", "internal/node/atomicfile", "internal/node/executor/health",
			"internal/node/executor/host", "internal/node/executor/hostfs", "internal/node/executor/images",
			"internal/node/executor/netfilter", "internal/node/executor/process",
			"internal/node/executor/program", "internal/node/executor/system",
			"internal/node/executor/systemctl", "internal/node/executor/systemd", "internal/node/ledger",
			"internal/node/lock", "internal/node/op",
		},
		why: "removes what Kubernetes and Slipway left on a host",
	},
	{
		layer: 1, pkg: "internal/node/executor/autobackup", exactly: true,
		may: []string{
			"internal/backup", "internal/backup/copies", "internal/bounded", "internal/node/atomicfile",
			"internal/node/executor/etcd", "internal/node/executor/host", "internal/node/op",
			"internal/pki",
		},
		why: "scheduled backups of etcd that a host takes itself",
	},
	{
		layer: 1, pkg: "internal/node/executor", exactly: true,
		may: []string{
			"internal/bounded", "internal/node/atomicfile", "internal/node/executor/autobackup",
			"internal/node/executor/certs", "internal/node/executor/etcd", "internal/node/executor/facts",
			"internal/node/executor/health", "internal/node/executor/host", "internal/node/executor/hostfs",
			"internal/node/executor/images", "internal/node/executor/pods",
			"internal/node/executor/process", "internal/node/executor/program",
			"internal/node/executor/reset", "internal/node/executor/system",
			"internal/node/executor/systemctl", "internal/node/executor/systemd", "internal/node/ledger",
			"internal/node/lock", "internal/node/op",
		},
		why: "the helper's engine room: one registry of operations; knows the host and nothing of clusters",
	},
	{
		layer: 1, pkg: "internal/node/transfer", exactly: true, may: []string{"internal/exact", "internal/bytesize"},
		why: "a copy, the same at both ends: knows files and a connection",
	},
	{
		layer: 1, pkg: "internal/node/p2p", exactly: true, may: []string{"internal/remote"},
		why: "content between two helpers: knows files, a connection, and the words of the contract",
	},
	{
		layer: 1, pkg: "internal/node/wire", exactly: true, may: []string{"internal/node/op", "internal/remote"},
		why: "the framing between the two ends, and the words of the contract",
	},
	{
		layer: 1, pkg: "internal/node/helper", exactly: true,
		may: []string{
			"internal/bounded", "internal/node/op", "internal/node/executor", "internal/node/executor/host",
			"internal/node/lock", "internal/node/p2p",
			"internal/node/transfer", "internal/node/wire", "internal/remote",
		}, why: "the helper's program: serves one manager",
	},
	{layer: 1, pkg: "internal/node/embedded", exactly: true, why: "the packed helpers, as bytes"},
	{
		layer: 1, pkg: "internal/node/embedded/pack", exactly: true, may: []string{"internal/node/embedded"},
		why: "packs a helper at build time",
	},
	{
		layer: 1, pkg: "internal/remote", exactly: true, may: []string{"internal/exact", "internal/node/op"},
		why: "how a host is reached, as interfaces; the helper links it too",
	},
	{
		layer: 1, pkg: "internal/remote/bootstrap", may: []string{"internal/remote", "internal/node/wire", "internal/node/embedded"},
		why: "from a login to a running helper, over any transport",
	},
	{
		layer: 1, pkg: "internal/remote/ssh",
		may: []string{
			"internal/bounded", "internal/sshconfig", "internal/remote", "internal/remote/bootstrap",
			"internal/node/wire", "internal/node/embedded",
		}, why: "SSH; knows no other transport",
	},
	{layer: 1, pkg: "internal/sshconfig", exactly: true, why: "the files of ssh's configuration: knows no host, and runs nothing"},
	{
		layer: 1, pkg: "internal/remote/local",
		may: []string{"internal/remote", "internal/remote/bootstrap", "internal/node/wire", "internal/node/embedded"},
		why: "this machine; knows no other transport",
	},
	{
		layer: 1, pkg: "internal/remote/dial",
		may: []string{"internal/remote", "internal/remote/ssh", "internal/remote/local", "internal/node/embedded"},
		why: "chooses the way to a host",
	},
	{
		layer: 1, pkg: "internal/remote/remotetest", may: []string{"internal/remote/...", "internal/node/..."},
		why: "a real SSH server over the real helper, for tests",
	},
	{
		layer: 1, pkg: "internal/remote/p2p", exactly: true, may: []string{"internal/remote"},
		why: "who gets content from whom; knows no transport",
	},
	{layer: 1, pkg: "internal/facts", may: []string{"internal/remote", "internal/spec/hostroles"}, why: "asks hosts what they are"},
	{
		layer: 1, pkg: "internal/backup", exactly: true, may: []string{"internal/bounded", "internal/fsync"},
		why: "backup sets are files: knows no cluster and no host; links into the node helper",
	},
	{
		layer: 1, pkg: "internal/backup/copies", exactly: true, may: []string{"internal/fsync", "internal/node/op"},
		why: "where copies are kept: knows names of files, and nothing of what is in them; links into the node helper",
	},
	{
		layer: 1, pkg: "internal/backup/copies/copiestest", may: []string{"internal/node/op"},
		why: "a machine and storage that keep copies, for tests; links into no program",
	},
	{
		layer: 1, pkg: "internal/backup/verify", exactly: true, may: []string{"internal/backup"},
		why: "what is in a set, by libraries that the node helper has not",
	},
	{
		layer: 1, pkg: "internal/kube", may: []string{"internal/kubeletcsr"},
		why: "the Kubernetes API: apply, wait, drain; approves what kubelets may ask for",
	},
	{
		layer: 1, pkg: "internal/kubeconfig", may: []string{"internal/pki"},
		why: "users' kubeconfig files, merged without touching other entries; certificates in hosts' kubeconfigs are verified",
	},
	{layer: 1, pkg: "internal/sandbox", why: "machines for trying and testing; knows no cluster that runs on them"},

	{
		layer: 2, pkg: "internal/addonsource", may: []string{"internal/ocitransport", "internal/pki"},
		why: "from manifests and charts to objects, and certificates for them; asks no cluster",
	},
	{layer: 2, pkg: "internal/engine", may: []string{"internal/remote"}, why: "pipelines over hosts; knows no module"},
	{layer: 2, pkg: "internal/records", why: "how clusters and operations are kept; knows no backend"},
	{
		layer: 2, pkg: "internal/records/filesdir", may: []string{"internal/records"},
		why: "records of clusters with files in a private directory; knows no backend",
	},
	{layer: 2, pkg: "internal/records/sharedsync", exactly: true, why: "one write for several callers; knows no events"},
	{layer: 2, pkg: "internal/records/conformance", may: []string{"internal/records"}, why: "one suite for every backend"},
	{
		layer: 2, pkg: "internal/records/recordstest", may: []string{"internal/records"},
		why: "records in memory and writes that fail, for tests; links into no program",
	},
	{
		layer: 2, pkg: "internal/store", may: []string{"internal/records", "internal/records/sharedsync"},
		why: "clusters and operations in files",
	},
	{
		layer: 2, pkg: "internal/store/kube", may: []string{
			"internal/records", "internal/records/sharedsync", "internal/privatedir", "internal/store/kube/archive",
			"internal/store/kube/operationlog",
		},
		why: "clusters and operations as objects of an API",
	},
	{
		layer: 2, pkg: "internal/store/kube/archive", may: []string{"internal/backup/copies", "internal/records"},
		why: "finished operations as files; sends no request to an API of Kubernetes",
	},
	{
		layer: 2, pkg: "internal/store/kube/operationlog", exactly: true,
		may: []string{"api/v1alpha1", "internal/bounded", "internal/diag", "internal/event"},
		why: "journals as objects: a pure function of events; sends no request to an API",
	},

	{
		layer: 3, pkg: "internal/bundle/operatorimage", may: []string{"internal/bundle/pack"},
		why: "the image of a program file; knows no bundle",
	},
	{layer: 3, pkg: "internal/bundle", may: []string{"internal/ocitransport"}, why: "from a catalogue to verified content"},
	{
		layer: 3, pkg: "internal/bundle/layout", exactly: true, may: []string{"internal/node/transfer", "internal/safefile"},
		why: "blobs in a directory or archive; knows no catalogue; transfer says what a disk has room for",
	},
	{
		layer: 3, pkg: "internal/bundle/bundlestore", may: []string{"internal/bundle"},
		why: "the bundles of a cache, and which are in use; knows no cluster",
	},
	{
		layer: 3, pkg: "internal/bundle/mirror", exactly: true, may: []string{"internal/diag", "internal/registryname"},
		why: "the references of mirrors; knows no bundle",
	},
	{layer: 3, pkg: "internal/bundle/pack", exactly: true, may: []string{"internal/safefile"}, why: "layers and images, bit for bit the same"},
	{
		layer: 3, pkg: "internal/bundle/source", exactly: true, may: []string{"internal/bundle/pack", "internal/release"},
		why: "what a source of content answers",
	},
	{
		layer: 3, pkg: "internal/bundle/source/modules",
		may: []string{"internal/bundle/pack", "internal/bundle/source", "images"}, why: "a source; knows no other",
	},
	{
		layer: 3, pkg: "internal/bundle/source/upstream",
		may: []string{"internal/bundle/layout", "internal/bundle/pack", "internal/bundle/source", "internal/ocitransport"},
		why: "a source; knows no other; keeps pulled images in a layout",
	},
	{
		layer: 3, pkg: "internal/bundle/bundletest", may: []string{"internal/bundle", "internal/bundle/..."},
		why: "tiny releases on loopback, for tests",
	},
	{
		layer: 3, pkg: "internal/module", exactly: true, may: append([]string{"internal/pki"}, moduleBase...),
		why: "what modules share; knows none of them; signs what hosts request",
	},
	{layer: 3, pkg: "internal/module/addon", may: []string{"internal/module"}, why: noOtherModule},
	{
		layer: 3, pkg: "internal/module/certs", may: []string{"internal/kubeletcsr", "internal/module", "internal/pki"},
		why: noOtherModule + "; pki says by which key a token was signed",
	},
	{layer: 3, pkg: "internal/module/etcdbackup", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/bundle", may: []string{"internal/module", "internal/bundle"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/dns", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/endpoint", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/etcd", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/hooks", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/kubeadm", may: []string{"internal/module", "internal/pki"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/noderemoval", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/network", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/upgrade", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/nodes", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/hostprep", may: []string{"internal/module"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/precheck", may: []string{"internal/module", "internal/remote"}, why: noOtherModule},
	{layer: 3, pkg: "internal/module/clusterstate", may: []string{"internal/module"}, why: noOtherModule},
	{
		layer: 3, pkg: "internal/module/registry", may: []string{"internal/module", "internal/bundle"},
		why: noOtherModule + "; a registry has the images of a bundle",
	},
	{layer: 3, pkg: "internal/module/reset", may: []string{"internal/module"}, why: noOtherModule},
	{
		layer: 3, pkg: "internal/module/containerruntime", may: []string{"internal/module", "internal/bundle"},
		why: noOtherModule + "; containers have the images of a bundle",
	},
	{layer: 3, pkg: "internal/pipeline", may: []string{"internal/module/..."}, why: "ordered lists of modules, no logic"},

	{
		layer: 4, pkg: "internal/lifecycle",
		may: []string{
			"internal/backup", "internal/backup/...", "internal/remote", "internal/remote/p2p",
			"internal/node/transfer", "internal/module", "internal/bundle/source", "internal/pki",
		}, why: "the only door to all below",
	},
	{
		layer: 4, pkg: "internal/lifecycle/inspect",
		may: []string{
			"internal/backup", "internal/backup/copies", "internal/lifecycle/access", "internal/lifecycle/hostconn",
			"internal/module", "internal/remote",
		},
		why: "reports of clusters: asks hosts and APIs, and changes nothing",
	},
	{
		layer: 4, pkg: "internal/lifecycle/backups",
		may: []string{
			"internal/backup", "internal/backup/copies", "internal/backup/verify", "internal/lifecycle/access",
			"internal/lifecycle/hostconn", "internal/lifecycle/hostexec", "internal/lifecycle/inspect", "internal/module",
			"internal/module/etcdbackup", "internal/node/transfer", "internal/pki", "internal/remote",
		},
		why: "backup sets and the keys that sign them; changes no cluster",
	},
	{
		layer: 4, pkg: "internal/lifecycle/savedstate", may: []string{"internal/lifecycle/access"},
		why: "the saved clusters and operations; reaches no host",
	},
	{
		layer: 4, pkg: "internal/lifecycle/history",
		may: []string{
			"internal/lifecycle/savedstate", "internal/module", "internal/module/etcdbackup", "internal/module/noderemoval",
		},
		why: "what earlier operations have done, from the records alone",
	},
	{layer: 4, pkg: "internal/lifecycle/journal", why: "writes events, and decides nothing"},
	{
		layer: 4, pkg: "internal/lifecycle/bundlesource",
		may: []string{"internal/bundle/source", "internal/module"}, why: "bundles and releases of clusters; reaches no host",
	},
	{
		layer: 4, pkg: "internal/lifecycle/registrysecrets", may: []string{"internal/module", "internal/module/registry", "internal/pki"},
		why: "the secrets of private registries, from the records and files; reaches no host",
	},
	{
		layer: 4, pkg: "internal/lifecycle/carotation",
		may: []string{"internal/lifecycle/inspect", "internal/module", "internal/module/certs", "internal/pki"},
		why: "the progress of a rotation of CAs and keys; changes nothing",
	},
	{
		layer: 4, pkg: "internal/lifecycle/etcdrescue",
		may: []string{
			"internal/lifecycle/hostconn", "internal/lifecycle/inspect", "internal/module", "internal/module/etcdbackup", "internal/remote",
		},
		why: "decides from which member etcd is rescued; changes nothing",
	},
	{
		layer: 4, pkg: "internal/lifecycle/supportbundle",
		may: []string{"internal/lifecycle/hostconn", "internal/lifecycle/inspect", "internal/remote"},
		why: "an archive of a cluster's state without secrets; changes nothing",
	},
	{
		layer: 4, pkg: "internal/lifecycle/lifecycletest",
		may: []string{
			"internal/backup/copies", "internal/backup/verify", "internal/kubeletcsr", "internal/module", "internal/module/certs",
			"internal/node/transfer", "internal/pki", "internal/pki/pkitest", "internal/remote",
		},
		why: "a simulated cluster, for tests; imports no operation, so that tests of lifecycle can import it; links into no program",
	},
	{
		layer: 4, pkg: "internal/lifecycle/supportbundle/supportbundletest", exactly: true,
		why: "texts and objects with secrets, for tests; links into no program",
	},
	{
		layer: 4, pkg: "internal/lifecycle/access", may: []string{"internal/lifecycle/hostconn", "internal/module", "internal/pki"},
		why: "kubeconfigs, API addresses and kubectl; knows no operation",
	},
	{
		layer: 4, pkg: "internal/lifecycle/clusterlock", may: []string{"internal/lifecycle/hostconn", "internal/remote"},
		why: "the lock of a cluster on its control planes; knows no operation but its id",
	},
	{
		layer: 4, pkg: "internal/lifecycle/hostconn", may: []string{"internal/remote", "internal/node/transfer"},
		why: "connects to hosts for queries; knows no operation",
	},
	{
		layer: 4, pkg: "internal/lifecycle/move",
		may: []string{
			"internal/lifecycle/clusterlock", "internal/lifecycle/history", "internal/lifecycle/hostconn",
			"internal/lifecycle/savedstate", "internal/remote", "internal/spec/apicheck",
		},
		why: "copies the records of a cluster to another manager; knows no operation and no API",
	},
	{
		layer: 4, pkg: "internal/lifecycle/hostexec",
		may: []string{"internal/lifecycle/hostconn", "internal/remote", "internal/node/transfer"},
		why: "work of users on hosts; knows no operation",
	},

	{
		layer: 5, pkg: "internal/cli", may: []string{"internal/remote", "internal/node/transfer"},
		why: "a front: asks lifecycle, whose packages have the types of the results; imports no other front",
	},
	{layer: 5, pkg: "internal/cli/program", why: "what commands have of the program; knows none of them"},
	{layer: 5, pkg: "internal/cli/view", why: "shows events; decides nothing"},
	{
		layer: 5, pkg: "internal/cli/sandboxcmd", may: []string{"internal/cli/program", "internal/cli/view"},
		why: "commands over package sandbox",
	},
	{
		layer: 5, pkg: "internal/cli/bundlecmd",
		may: []string{"internal/cli/program", "internal/cli/view", "internal/bundle/source"}, why: "commands over package bundle",
	},

	{
		layer: 5, pkg: "internal/cli/operatorcmd",
		may: []string{"internal/cli/program", "internal/operator/install", "internal/operator/manifests"},
		why: "commands over package install",
	},

	{
		layer: 5, pkg: "internal/cli/movecmd",
		may: []string{"internal/cli/program", "internal/cli/view", "internal/operator/api", "internal/store/kube"},
		why: "a command over package move; selects the records of the API",
	},

	{
		layer: 5, pkg: "internal/operator/api", may: []string{"internal/operator/manifests"},
		why: "Cluster objects of an API, for commands",
	},
	{
		layer: 5, pkg: "internal/operator/manifests", may: []string{"internal/bundle/operatorimage"},
		why: "the objects of the operator: pure, sends no request",
	},
	{
		layer: 5, pkg: "internal/operator/install", may: []string{"internal/operator/api", "internal/operator/manifests"},
		why: "changes the operator in a cluster; knows no Cluster object",
	},
	{layer: 5, pkg: "internal/operator/webhookcert", may: []string{"internal/pki"}, why: "the certificate of the webhook; knows no request"},

	{
		layer: 5, pkg: "internal/server/privatefile", may: []string{"internal/node/atomicfile"},
		why: "files with keys of a server: replaced durably, read only if no other user has access; knows no content",
	},
	{layer: 5, pkg: "internal/server/diskspace", why: "how much room a server needs on its disk; knows no file"},
	{
		layer: 5, pkg: "internal/server/datadir",
		may: []string{"internal/node/atomicfile", "internal/server/privatefile"},
		why: "the data directory of a server: its safety, identity and lock; knows no content of its members",
	},
	{
		layer: 5, pkg: "internal/server/keys", may: []string{"internal/pki", "internal/server/privatefile"},
		why: "service account and encryption keys of a server, as files; links no API server",
	},
	{
		layer: 5, pkg: "internal/server/certificates",
		may: []string{"internal/pki", "internal/server/privatefile"},
		why: "the CA and the certificates of a server, as files; links no API server",
	},
	{
		layer: 5, pkg: "internal/server/serverbackup",
		may: []string{
			"internal/backup", "internal/backup/copies",
			"internal/server/datadir", "internal/server/diskspace", "internal/server/privatefile",
		},
		why: "backup sets of the server, and where they are kept; takes no snapshot itself",
	},

	{
		layer: 5, pkg: "internal/server/controlplane",
		may: []string{
			"internal/server/certificates", "internal/server/datadir", "internal/server/diskspace", "internal/server/keys", "internal/spec",
			"internal/admission", "internal/hostclaims",
		},
		why: "the API server and its etcd, in this process, with the rules of files for objects; knows no command and no backup set",
	},
	{
		layer: 5, pkg: "internal/server/controlplane/etcdtest", exactly: true,
		why: "an etcd of several members for tests; links into no program",
	},
	{
		layer: 5, pkg: "internal/server/controlplane/testserver",
		may: []string{
			"internal/server/certificates", "internal/server/controlplane", "internal/server/datadir", "internal/server/keys",
		},
		why: "a real server for tests, one a process; links into no program",
	},
	{
		layer: 5, pkg: "internal/server/adminclient", may: []string{"internal/server/certificates", "internal/server/datadir"},
		why: "requests of commands to the server on the same data directory; links no API server",
	},
	{
		layer: 5, pkg: "internal/server/useraccess", may: []string{"internal/pki"},
		why: "client certificates of users, through the certificates API; knows no file",
	},
	{layer: 5, pkg: "internal/server/rest", why: "parts of objects, page by page; knows no API server and no rights"},
	{layer: 5, pkg: "internal/server/keyrotation", why: "the order of a rotation of encryption keys; knows no file and no API server"},
	{layer: 5, pkg: "internal/controller/intent", why: "what a user wants of a cluster: the object with its files; reaches no host"},
	{
		layer: 5, pkg: "internal/controller/service", may: []string{"internal/controller/intent"},
		why: "opens lifecycle for an object with its files; decides nothing",
	},
	{layer: 5, pkg: "internal/controller/maintenance", why: "when windows are open: pure, from a spec and a time"},
	{
		layer: 5, pkg: "internal/controller/hostguard", may: []string{"internal/controller/service"},
		why: "which Cluster may use a host; reaches no host",
	},
	{
		layer: 5, pkg: "internal/controller/executor",
		may: []string{"internal/controller/hostguard", "internal/controller/intent", "internal/controller/service", "internal/pki"},
		why: "runs operations of an API through lifecycle; decides nothing about their order",
	},
	{layer: 5, pkg: "internal/controller/clusterstatus", why: "writes a part of a status; knows no condition"},
	{
		layer: 5, pkg: "internal/controller/operations", may: []string{"internal/controller/executor", "internal/controller/maintenance"},
		why: "the queue of each cluster; reaches no host",
	},
	{
		layer: 5, pkg: "internal/controller/jobs", may: []string{"internal/controller/executor", "internal/controller/hostguard"},
		why: "runs operations in Jobs; plans and applies none",
	},
	{
		layer: 5, pkg: "internal/controller/clusters",
		may: []string{
			"internal/controller/clusterstatus", "internal/controller/executor", "internal/controller/hostguard",
			"internal/controller/intent", "internal/controller/maintenance", "internal/controller/operations", "internal/controller/service",
		},
		why: "from an object to the next operation; reaches no host",
	},
	{
		layer: 5, pkg: "internal/controller/metrics", may: []string{"internal/controller/operations"},
		why: "metrics of clusters and operations, from their objects",
	},
	{
		layer: 5, pkg: "internal/controller/health",
		may: []string{"internal/controller/clusterstatus", "internal/controller/operations", "internal/controller/service"},
		why: "probes clusters and shows their health; changes no cluster",
	},
	{layer: 5, pkg: "internal/controller/sharding", why: "which process has which cluster; knows no object but its Leases"},
	{layer: 5, pkg: "internal/controller/readcache", why: "keeps objects that probes read; knows no cluster"},
	{
		layer: 5, pkg: "internal/controller/drift",
		may: []string{
			"internal/controller/clusterstatus", "internal/controller/executor", "internal/controller/operations", "internal/controller/service",
		},
		why: "finds manual changes on hosts; requests repairs and never applies",
	},
	{
		layer: 5, pkg: "internal/controller/schedule", may: []string{"internal/controller/health", "internal/controller/operations"},
		why: "requests operations that are due; reaches no host",
	},
	{layer: 5, pkg: "internal/controller", why: "a front: composes the controllers"},
	{
		layer: 5, pkg: "internal/daemon",
		may: []string{
			"internal/server/...", "internal/controller", "internal/controller/metrics", "internal/remote/dial",
			"internal/operator/manifests", "internal/operator/webhookcert",
		},
		why: "the commands of slipwayd; composes the packages of the server",
	},

	{layer: 6, pkg: "cmd/slipway", exactly: true, may: []string{"internal/cli"}, why: "a main makes the context and the streams, no more"},
	{layer: 6, pkg: "cmd/slipwayd", exactly: true, may: []string{"internal/daemon"}, why: "a main makes the context and the streams, no more"},
	{
		layer: 6, pkg: "cmd/slipway-node", exactly: true, may: []string{"internal/node/helper"},
		why: "a main makes the context and the streams, no more",
	},
	{
		layer: 6, pkg: "hack/kubectl", exactly: true,
		why: "the client of Kubernetes, for tests and the quickstart; links into no program of ours",
	},
	{layer: 6, pkg: "internal/archtest", exactly: true, why: "reads what go list says"},
	{layer: 6, pkg: "test/bench", exactly: true, may: []string{"test/kubeadmscript"}, why: "runs the programs as a user does"},
	{layer: 6, pkg: "test/kubeadmscript", exactly: true, why: "unpacks bundles as a user does"},
	{layer: 6, pkg: "test/bench/hosts", exactly: true, why: "runs the programs as a user does"},
	{
		layer: 6, pkg: "test/bench/hosts/manager", exactly: true,
		may: []string{
			"api/v1alpha1", "internal/cli", "internal/records", "internal/status", "internal/store/kube",
		},
		why: "the command line with records in an API, which no program of ours has; for a benchmark",
	},
	{
		layer: 6, pkg: "test/e2e", exactly: true,
		may: []string{"internal/bundle/source", "internal/bundle/source/modules", "internal/release", "test/kubeadmscript"},
		why: "runs the programs as a user does; compiles Kubernetes' own tests, which no program of ours does",
	},
	{layer: 6, pkg: "test/e2e/client", exactly: true, why: "asks the API as others do, from client-go alone"},
}

// moduleBase lists the packages that the modules' common package may import.
var moduleBase = []string{
	"api/v1alpha1", "internal/bundle", "internal/diag", "internal/engine", "internal/facts", "internal/kube",
	"internal/node/op", "internal/plan", "internal/release", "internal/secret", "internal/spec", "internal/spec/hostroles",
}

const noOtherModule = "a module imports no other module: what they share goes through typed keys"

// A fence lists the only packages that may import some package, of this module
// or another. Tests may import it too.
type fence struct {
	imported string
	only     []string
	why      string
}

var fences = []fence{
	{
		"golang.org/x/crypto/ssh/...",
		[]string{"internal/remote/ssh", "internal/remote/remotetest", "internal/backup/copies", "internal/backup/copies/copiestest"},
		"one place for host keys, logins and reconnecting; and one for files that hosts send by themselves",
	},
	{
		"github.com/pkg/sftp/...",
		[]string{"internal/backup/copies", "internal/backup/copies/copiestest"},
		"what goes to hosts goes through their helpers",
	},
	{"github.com/minio/minio-go/v7/...", []string{"internal/backup/copies"}, "storage is where copies are kept, and nothing else is"},
	{
		"filippo.io/age/...",
		[]string{"internal/backup", "internal/lifecycle/backups", "internal/spec", "internal/node/executor", "internal/server/serverbackup"},
		"sets are encrypted, and nothing else is",
	},
	{"os/exec", []string{
		"internal/node/executor",                                       // programs of a user, on the host
		"internal/node/executor/host",                                  // argv of operations, on the host
		"internal/remote/local",                                        // starts the helper
		"internal/remote/remotetest",                                   // builds the helper, and runs shells, for tests
		"internal/bundle/source/modules",                               // the go command
		"internal/sandbox",                                             // ip, mkfs, debootstrap
		"internal/lifecycle/access",                                    // the bundle's kubectl
		"internal/cli",                                                 // plugins
		"internal/cli/sandboxcmd",                                      // ssh into a machine
		"internal/archtest", "internal/testutil/smalldisk", "test/...", // the programs under test
	}, "programs are run by argv in few places, or they are shell strings everywhere"},
	{"github.com/spf13/cobra/...", []string{"internal/cli/...", "internal/daemon"}, "commands are a front"},
	{"github.com/spf13/pflag/...", []string{"internal/cli"}, "flags are cobra's, and are looked over in one place"},
	{"github.com/BurntSushi/toml/...", []string{"internal/spec"}, "settings of containerd are checked where the file is, and hosts read none"},
	{
		"k8s.io/client-go/...",
		[]string{
			"internal/kube", "internal/kubeconfig", "images/updater", "test/e2e/client",
			"internal/store/kube", "internal/testutil/faultproxy", "internal/server/...", "internal/daemon", "internal/controller/...",
			"internal/operator/...",
			"test/bench/hosts", "test/bench/hosts/manager",
		},
		"one way to speak to the Kubernetes API of clusters, and one to the API that has Cluster objects",
	},
	{
		"github.com/google/go-containerregistry/...",
		[]string{"internal/bundle/...", "internal/addonsource", "internal/ocitransport"},
		"images are the bundle's matter, and charts in registries look like them",
	},
	{"helm.sh/helm/...", []string{"internal/addonsource"}, "charts are rendered, and nothing else of Helm is wanted"},
	{
		"go.etcd.io/bbolt/...",
		[]string{"internal/backup/verify", "internal/server/controlplane", "internal/lifecycle/lifecycletest"},
		"etcd's own file is read to verify it, and made for tests",
	},
	{"internal/store", []string{"internal/cli"}, "a front end selects the backend of the records"},
	{"sigs.k8s.io/controller-runtime/...", []string{"internal/controller/..."}, "one place has controllers"},
	{"k8s.io/kubernetes/...", []string{"internal/server/controlplane"}, "one place knows the libraries of the API server"},
	{
		"go.etcd.io/etcd/...",
		[]string{"internal/server/controlplane", "internal/server/controlplane/etcdtest"},
		"one place knows the server and the client of etcd",
	},
	{"k8s.io/kubectl/...", []string{"hack/kubectl"}, "a client for tests; no program of ours contains it"},
	{"flag", []string{"internal/testutil/golden", "test/bench/..."}, "a program's flags are cobra's"},
	{"log", nil, "logs go through slog"},
}

// A closure limits the packages outside the standard library that a program or
// package links, or imports directly.
type closure struct {
	of     string
	direct bool
	may    []string
	why    string
}

var closures = []closure{
	{of: "cmd/slipway-node", may: []string{
		"golang.org/x/sync/errgroup", "golang.org/x/sys/...", "internal/bounded", "internal/exact", "internal/fsync",
		"internal/bytesize", "internal/kubeletcsr", "internal/node/...", "internal/pki", "internal/remote",
		"internal/backup", "internal/backup/copies", // sets that hosts copy automatically
		"filippo.io/age/...", "filippo.io/hpke/...", "github.com/pkg/sftp/...", "github.com/kr/fs/...", "golang.org/x/crypto/...",
		// The client of S3, and what it links.
		"github.com/minio/...", "github.com/cespare/xxhash/v2", "github.com/dustin/go-humanize",
		"github.com/google/uuid", "github.com/klauspost/...", "github.com/philhofer/fwd", "github.com/rs/xid",
		"github.com/tinylib/msgp/...", "github.com/zeebo/xxh3", "go.yaml.in/yaml/v3", "golang.org/x/net/http/httpguts",
		"golang.org/x/net/idna", "golang.org/x/net/publicsuffix", "golang.org/x/text/...", "gopkg.in/ini.v1",
	}, why: "the helper goes to every host: small, static, nothing of Kubernetes"},
	{
		of: "images/updater", direct: true, may: []string{"k8s.io/api/...", "k8s.io/apimachinery/...", "k8s.io/client-go/..."},
		why: "a bundle's build compiles it from client-go and what that requires",
	},
	{
		of: "internal/store/kube/operationlog", direct: true, may: []string{
			"k8s.io/apimachinery/...", "github.com/klauspost/compress/zstd",
			"api/v1alpha1", "internal/bounded", "internal/diag", "internal/event",
		},
		why: "journals as objects are data: no client, no controller",
	},
	{of: "api/v1alpha1", direct: true, may: []string{"k8s.io/apimachinery/..."}, why: "others use the types without the program"},
}

// An exclusion lists packages that a program must not link, not even through other
// packages. Except lists packages below them that it may link.
type exclusion struct {
	of            string
	never, except []string
	why           string
}

var exclusions = []exclusion{
	{
		of: "cmd/slipway",
		never: []string{
			"k8s.io/kubernetes/...", "k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/...", "k8s.io/kube-aggregator/...",
			"k8s.io/component-base/...", "k8s.io/controller-manager/...", "k8s.io/cloud-provider/...", "k8s.io/kms/...",
			"k8s.io/kubectl/...", "k8s.io/cli-runtime/...", "sigs.k8s.io/controller-runtime/...",
			"go.etcd.io/etcd/...", "go.etcd.io/raft/...", "go.uber.org/zap/...", "google.golang.org/grpc/...",
			"github.com/prometheus/...", "go.opentelemetry.io/...", "github.com/google/cel-go/...", "github.com/danielgtaylor/huma/...",
			"internal/server/...", "internal/daemon/...", "internal/controller/...",
		},
		// Types of CustomResourceDefinition, for charts of Helm.
		except: []string{"k8s.io/apiextensions-apiserver/pkg/apis/..."},
		why:    "the command line must remain small; the management server is a separate program",
	},
}
