package messages

import "slipway.dev/slipway/api/v1alpha1"

var serverBackups = Section{
	Title: "Backups of the management server",
	Messages: []Message{
		{
			ID:      "server-backup-key-missing",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The key that signs the backups of a server is missing.",
			Cause: "The server makes `keys/backup-signing.key` at its first start only: with another key, its earlier " +
				"backups would not be trusted.",
			Remedy: "Restore the file from a backup of this server.",
		},
		{
			ID:      "server-backup-key-damaged",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The key that signs the backups of a server is damaged.",
			Cause:   "The server does not overwrite the file.",
			Remedy:  "Restore `keys/backup-signing.key` from a backup of this server.",
		},
		{
			ID:      "server-backup-unverified",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The backup set has no signature of a trusted key.",
			Cause: "Anyone who can write the file would decide all objects, users and keys of the server after a restore, so " +
				"nothing was changed.",
			Remedy: "Give the public key of the server with `--signed-by`: `slipwayd backup` prints it. With `--replace`, the " +
				"key of the existing data directory is trusted too. If only you could write the file, use `--unverified`.",
		},
		{
			ID:      "server-backup-keys-only",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The backup set has keys but no data, because the server used an external etcd.",
			Remedy: "Restore the set with `--keys-only`, and start the server with the same `--etcd-servers`. The owner of " +
				"that etcd restores its data.",
		},
		{
			ID:      "server-backup-newer",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The backup set is from a server with a newer Kubernetes version than this program.",
			Cause:   "This program may not be able to read all of its objects.",
			Remedy:  "Restore the set with the version of slipwayd that the message names, or a newer one.",
		},
		{
			ID:      "server-backup-no-room",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "A disk has no room for a backup of the server.",
			Cause: "A backup needs room for a copy of the database in `tmp` of the data directory, and for the set in its " +
				"own directory. It leaves a tenth of the disk free for the server, at least 32 MiB and at most 512 MiB.",
			Remedy: "Free space on the disk that the message names. You can also keep fewer backups, or use `directory` in the " +
				"backup configuration for another disk.",
		},
		{
			ID:      "server-backup-running",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Another backup of the server is running.",
			Cause:   "A server makes one backup at a time, scheduled ones included. It sends at most two at a time.",
			Remedy:  "Try again when it has ended.",
		},
		{
			ID:      "server-backup-incomplete",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "A backup set was not received to its end.",
			Cause:   "The server was stopped or its disk failed, or a proxy ended the connection. No file remains.",
			Remedy:  "Look for the reason in the log of the server, and try again.",
		},
		{
			ID:      "server-backup-target-unknown",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The backup configuration has no copy target of this name.",
			Remedy:  "Use the `name` of an entry of `copies` in the file of `--backup-config`.",
		},
		{
			ID:      "server-backup-keys-changed",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The keys of the server changed during each snapshot.",
			Cause: "The Secrets in a snapshot need the encryption keys of that time. So a backup takes the snapshot again " +
				"if the keys or certificates have changed, three times at most.",
			Remedy: "Wait for the rotation of keys to end, and try again.",
		},
		{
			ID:      "server-backup-request",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The server refused the request for a backup.",
			Cause:   "The message has the reason of the server: an invalid recipient, or a missing permission.",
			Remedy: "Correct the request. A role needs the verb `create` on the URL `/slipway/v1/server/backup`; " +
				"administrators have it.",
		},
		{
			ID:      "server-backup-file",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A file cannot be part of a backup, or is not a backup.",
			Cause: "The directories `pki` and `keys` of a data directory contain only files of the server. Names of backups " +
				"begin with `slipwayd_`.",
			Remedy: "Move a foreign file out of the data directory. `slipwayd list-backups` lists the names of backups.",
		},
	},
}
