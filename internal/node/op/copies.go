package op

import "time"

// AutoCopies is how a host copies its snapshots to elsewhere: each in a backup set,
// encrypted.
type AutoCopies struct {
	// Host is the host's name, by which its copies are told from those of others.
	Host string `json:"host"`
	// Recipients are the keys that the sets are encrypted to: age1….
	Recipients []string `json:"recipients"`
	EtcdType   string   `json:"etcdType"`
	// Authority is the file of the certificate by which a set is known to be this
	// cluster's, and Server the API server's manifest, which has the version.
	Authority string `json:"authority"`
	Server    string `json:"server"`
	// SigningKey is the file of the key that signs the sets and their names; "" leaves
	// them without signatures.
	SigningKey string `json:"signingKey,omitempty"`
	// Files go into the sets as far as they are there.
	Files []string     `json:"files"`
	To    []CopyTarget `json:"to"`
	// WithinSeconds is how long copying a snapshot may take, in seconds; 0 is
	// AutoCopyTime.
	WithinSeconds int64 `json:"withinSeconds,omitempty"`
}

// AutoCopyTime is how long copying a snapshot may take at most: what does not answer keeps
// nothing else from being done.
const AutoCopyTime = 30 * time.Minute

// A CopyTarget is where copies of backup sets are kept: one of Directory, SSH
// and S3.
type CopyTarget struct {
	Name string `json:"name"`
	// Keep is how many of its own copies a host keeps there.
	Keep int `json:"keep"`
	// Directory is one of the host's, on another disk than its own snapshots.
	Directory string   `json:"directory,omitempty"`
	SSH       *CopySSH `json:"ssh,omitempty"`
	S3        *CopyS3  `json:"s3,omitempty"`
	// SecretFile is where a host has what it logs in with.
	SecretFile string `json:"secretFile,omitempty"`
}

// CopySSH is a directory of another machine, by SFTP.
type CopySSH struct {
	Address   string `json:"address"`
	Port      int    `json:"port"`
	User      string `json:"user"`
	Directory string `json:"directory"`
	// HostKey is the machine's: "ssh-ed25519 AAAA…" or "SHA256:…".
	HostKey string `json:"hostKey"`
}

// CopyS3 is a bucket of storage that is spoken to in the way of S3.
type CopyS3 struct {
	Endpoint string `json:"endpoint"`
	Region   string `json:"region"`
	Bucket   string `json:"bucket"`
	// Prefix is what keys have before a '/' and the copy's name; "" for nothing.
	Prefix string `json:"prefix,omitempty"`
	// PathStyle has the bucket in the path, else it is in the host's name.
	PathStyle bool `json:"pathStyle"`
}

// A CopyOutcome is what came of copying to one target.
type CopyOutcome struct {
	Target string `json:"target"`
	// Copied is when the latest snapshot was begun that is there; zero is none.
	Copied time.Time `json:"copied,omitzero"`
	// Failed is why the latest time failed, "" if it did not, and Since when it did
	// first after it had not.
	Failed string    `json:"failed,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Begun is since when copying has not come to an end: it runs, or was cut off; zero
	// is that it has ended.
	Begun time.Time `json:"begun,omitzero"`
	// Kept is how many of this host's are there, and Unremoved why some are that were to
	// go; "" is that they are gone.
	Kept      int    `json:"kept"`
	Unremoved string `json:"unremoved,omitempty"`
}

// Copies answers with the files in a directory where copies are kept, as JSON in
// Result.Output. It never changes anything.
type Copies struct {
	Directory string `json:"directory"`
}

// KindCopies is the kind of Copies.
const KindCopies Kind = "copies"

// Kind is KindCopies.
func (Copies) Kind() Kind { return KindCopies }

// Target is the directory.
func (o Copies) Target() string { return o.Directory }
