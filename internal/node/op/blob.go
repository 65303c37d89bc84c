package op

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

// KindFetchBlob is the kind of FetchBlob.
const KindFetchBlob Kind = "fetch-blob"

func (FetchBlob) Kind() Kind { return KindFetchBlob }

func (o FetchBlob) Target() string { return o.Name }

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

// KindUnpack is the kind of Unpack.
const KindUnpack Kind = "unpack"

func (Unpack) Kind() Kind { return KindUnpack }

func (o Unpack) Target() string { return o.Name + " in " + o.Dir }
