package serverbackup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
)

// defaultKeep is the number of sets at a target that names none.
const defaultKeep = 8

// SendFile copies an encrypted set to a target under a name that the server has proposed, and
// removes the oldest sets of the server there. unremoved is the reason why old sets could
// not be removed.
func SendFile(ctx context.Context, to Target, file, name string, signer *backup.SigningKey) (unremoved, err error) {
	n, encrypted, ok := parseFileName(name)
	if !ok || !encrypted || !n.IsVerified(signer) {
		return nil, diag.Refuse(idBadFile, fmt.Sprintf("%.120q is not the name of an encrypted backup of this server", name),
			"use the data directory of the server that made the backup")
	}
	target, err := to.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening target %s: %w", to.Name, err)
	}
	defer target.Close()
	sent, err := copies.SendCopy(ctx, target, n, signer, cmp.Or(to.Keep, defaultKeep), func(w io.Writer) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, contextReader{ctx.Err, f})
		return err
	})
	if err != nil {
		return nil, explainRoom(fmt.Errorf("copying the backup to target %s: %w", to.Name, err))
	}
	return sent.Unremoved, nil
}
