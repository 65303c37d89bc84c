package bounded

// These are the limits for content that is read whole, by kind of content. Each is
// several times the size of the largest real content.
const (
	// Word is for files with one value: an id, a name, a number.
	Word = 64 << 10
	// Argument is for files that a user names: keys, certificates, passwords,
	// credentials, lists.
	Argument = 4 << 20
	// Proc is for files of /proc and /sys. Pods can make theirs long.
	Proc = 16 << 20
	// Pod is for files that containers can write.
	Pod = 4 << 20
	// Config is for files of a host that programs read as their settings.
	Config = 64 << 20
	// Record is for files that only this program writes.
	Record = 256 << 20
	// Page is for a page of a list of the API, whose items nodes can write.
	Page = 16 << 20
	// Document is for answers of servers: manifests, charts, indexes, checksums.
	Document = 64 << 20
)
