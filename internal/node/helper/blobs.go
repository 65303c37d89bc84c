//go:build linux

package helper

import (
	"context"
	"io"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/p2p"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
)

// blobs is the manager as the content source of the Runner, and the hosts that the
// manager names.
type blobs struct {
	from wire.Fetcher
	lend *p2p.Lender
}

var _ host.BlobFetcher = blobs{}

func (b blobs) FetchBlob(ctx context.Context, blob op.Blob, offset int64, w io.Writer) (host.Fetched, error) {
	d, err := b.from.FetchBlob(ctx, blob, offset)
	if err != nil {
		return nil, err
	}
	shared, err := p2p.ReceiveContent(ctx, d, blob.Size, offset, w)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return &fetched{Delivery: d, digest: blob.Digest, shared: shared, lend: b.lend}, nil
}

func (b blobs) MakeRoom() { b.lend.LetGo() }

// fetched is a completely fetched blob.
type fetched struct {
	*wire.Delivery
	digest string
	shared bool
	lend   *p2p.Lender
}

func (f *fetched) Shared() bool { return f.shared }

// Verified keeps verified content for other hosts, if they may need it, and reports it to
// the manager. A failure of this does not affect the operation.
func (f *fetched) Verified(path string) {
	became := remote.Wrong
	if path != "" {
		if became = remote.Whole; f.Share() && f.lend.HoldFile(f.digest, path) != nil {
			became = remote.Unknown
		}
	}
	if f.Share() {
		_ = f.End(became)
	}
}
