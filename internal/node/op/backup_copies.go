package op

import "time"

// AutoCopies configures how a host copies its snapshots to other places, each as an
// encrypted backup set.
type AutoCopies struct {
	// Host is the name of the host, which distinguishes its copies from copies of other
	// hosts.
	Host string `json:"host"`
	// Recipients lists the public keys for the encryption of the sets: age1….
	Recipients []string `json:"recipients"`
	EtcdType   string   `json:"etcdType"`
	// Authority is the file of the CA certificate that identifies the cluster in a set.
	// Server is the manifest of the API server, which contains its version.
	Authority string `json:"authority"`
	Server    string `json:"server"`
	// SigningKey is the file of the key that signs the sets and their names; "" leaves
	// them unsigned.
	SigningKey string `json:"signingKey,omitempty"`
	// Files lists the files of a set; missing files are skipped.
	Files []string     `json:"files"`
	To    []CopyTarget `json:"to"`
	// WithinSeconds limits the time to copy a snapshot, in seconds; 0 means AutoCopyTime.
	WithinSeconds int64 `json:"withinSeconds,omitempty"`
}

// AutoCopyTime limits the time to copy a snapshot, so that a target that does not answer
// blocks nothing else.
const AutoCopyTime = 30 * time.Minute

// A CopyTarget is a target for copies of backup sets: one of Directory, SSH and S3.
type CopyTarget struct {
	Name string `json:"name"`
	// Keep is how many of its own copies a host keeps there.
	Keep int `json:"keep"`
	// Directory is a directory on the host, on another disk than its snapshots.
	Directory string   `json:"directory,omitempty"`
	SSH       *CopySSH `json:"ssh,omitempty"`
	S3        *CopyS3  `json:"s3,omitempty"`
	// SecretFile is the file with the credentials for the target on the host.
	SecretFile string `json:"secretFile,omitempty"`
}

// CopySSH is a directory on another machine, through SFTP.
type CopySSH struct {
	Address   string `json:"address"`
	Port      int    `json:"port"`
	User      string `json:"user"`
	Directory string `json:"directory"`
	// HostKey is the host key of the machine: "ssh-ed25519 AAAA…" or "SHA256:…".
	HostKey string `json:"hostKey"`
}

// CopyS3 is a bucket of S3-compatible storage.
type CopyS3 struct {
	Endpoint string `json:"endpoint"`
	Region   string `json:"region"`
	Bucket   string `json:"bucket"`
	// Prefix begins the object keys, before a '/' and the name of the copy; "" means no
	// prefix.
	Prefix string `json:"prefix,omitempty"`
	// PathStyle puts the bucket into the path instead of the host name.
	PathStyle bool `json:"pathStyle"`
}

// A CopyOutcome is the result of copying to one target.
type CopyOutcome struct {
	Target string `json:"target"`
	// Copied is the start time of the latest snapshot at the target; zero means none.
	Copied time.Time `json:"copied,omitzero"`
	// Failed is the reason why the latest copy failed, "" if it succeeded. Since is the
	// time of the first failure after a success.
	Failed string    `json:"failed,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Begun is the start time of a copy that has not finished: it is running, or was
	// interrupted. Zero means that it has finished.
	Begun time.Time `json:"begun,omitzero"`
	// Kept is the number of this host's copies at the target. Unremoved is the reason why
	// old copies could not be removed; "" means that they were removed.
	Kept      int    `json:"kept"`
	Unremoved string `json:"unremoved,omitempty"`
}

// ListBackupCopies lists the files in a directory for copies, as JSON in Result.Output. It never
// changes anything.
type ListBackupCopies struct {
	Directory string `json:"directory"`
}

// KindListBackupCopies is the kind of ListBackupCopies.
const KindListBackupCopies Kind = "copies"

// Kind is KindListBackupCopies.
func (ListBackupCopies) Kind() Kind { return KindListBackupCopies }

// Target is the directory.
func (o ListBackupCopies) Target() string { return o.Directory }
