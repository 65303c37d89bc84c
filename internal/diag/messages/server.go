package messages

var managementServer = Section{
	Title: "The management server",
	Messages: []Message{
		{
			ID:      "server-keys-missing",
			Summary: "The data directory of a server has data, but not its keys.",
			Cause: "The service account key signs the tokens of all service accounts, and the encryption keys decrypt " +
				"the Secrets. The server makes them at its first start only. A file was removed, or a disk is not mounted.",
			Remedy: "Mount the disk, or restore the directory `keys` from a backup of this server. A key from another " +
				"server does not help.",
		},
		{
			ID:      "server-keys-damaged",
			Summary: "A key file of a server is damaged, or another program has changed it.",
			Cause: "The disk was full or has failed, or someone edited the file. The server accepts only the form that it " +
				"writes, and overwrites no key.",
			Remedy: "Restore the directory `keys` from a backup of this server. If only `sa.pub` is damaged, remove it: the " +
				"server makes it from `sa.key`.",
		},
		{
			ID:      "server-key-unknown",
			Summary: "A step of a rotation names an encryption key that the server does not have.",
			Cause:   "Another rotation has ended in the meantime, or the directory `keys` was restored.",
			Remedy:  "Start the rotation again: `slipwayd rotate-encryption-key`.",
		},
		{
			ID:      "server-file-unsafe",
			Summary: "Users other than the server's may have read or changed one of its key files.",
			Cause: "The file is a link, belongs to another user, or has a mode that gives others access. Files with keys have " +
				"mode 0600.",
			Remedy: "Correct the owner and the mode as the hint shows. If others may have read the file, rotate its keys.",
		},
		{
			ID:      "server-ca-missing",
			Summary: "The data directory of a server has data or certificates, but not its CA.",
			Cause: "The server makes its CA at the first start only. With another CA, all kubeconfigs of users would be " +
				"invalid.",
			Remedy: "Restore `ca.crt` and `ca.key` in the directory `pki` from a backup of this server.",
		},
		{
			ID:      "server-ca-damaged",
			Summary: "The CA of a server cannot be used.",
			Cause:   "`ca.crt` or `ca.key` is damaged, or the two do not match. The server does not overwrite them.",
			Remedy:  "Restore both files in the directory `pki` from a backup of this server.",
		},
		{
			ID:      "server-certificate-damaged",
			Summary: "The serving or admin certificate of a server cannot be used.",
			Cause: "The certificate or its key is damaged, the two do not match, or another CA has signed the " +
				"certificate. The server does not overwrite them.",
			Remedy: "Move both files away. The server makes new ones when it starts.",
		},
		{
			ID:      "server-name-invalid",
			Summary: "A name for the serving certificate is neither a DNS name nor an IP address.",
			Remedy: "Correct the value of `--tls-san`. A DNS name has letters, digits, `-` and `.`, and can begin with " +
				"`*.`. An IPv6 address has no brackets and no zone.",
		},
	},
}
