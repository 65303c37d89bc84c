package messages

import "slipway.dev/slipway/api/v1alpha1"

var etcdMaintenance = Section{
	Title: "Work on etcd",
	Intro: "[etcd.md](etcd.md) describes the commands.",
	Messages: []Message{
		{
			ID:      "etcd-external",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The etcd of the cluster is external.",
			Cause: "`etcd snapshot`, `defrag` or `restore` was called for a cluster with external etcd, which Slipway does " +
				"not manage. Nothing was changed. Before an upgrade, Slipway still backs up the cluster's keys, without " +
				"data. `etcd members` and `etcd health` work as far as the certificates of the API servers allow it.",
			Remedy: "Ask the owner of the etcd.",
		},
		{
			ID:      "etcd-unhealthy",
			Code:    v1alpha1.ErrorInternal,
			Summary: "No etcd member is healthy enough for the operation.",
			Cause: "A snapshot needs a member that responds, follows a leader, votes, and has no known data corruption. A " +
				"defragmentation needs all members, because one member at a time is unavailable during it.",
			Remedy: "Find the problem with `slipway etcd health`.",
		},
		{
			ID:      "etcd-full",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "The etcd database is full, and all of it is in use.",
			Cause: "A defragmentation frees no space. Until there is space, etcd accepts only deletions, so `slipway " +
				"apply` cannot write either.",
			Remedy: "Delete objects that you do not need, such as old events, and defragment again, which also clears the " +
				"alarm. After that, raise the limit with `quota-backend-bytes` under `spec.etcd.extraArgs` (at most 8 " +
				"GiB is recommended), and run `slipway apply`.",
		},
	},
}

var etcdBackups = Section{
	Title: "Backups of etcd",
	Intro: "[backup.md](backup.md) has the steps.",
	Messages: []Message{
		{
			ID:      "drill-failed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A backup set could not be tested.",
			Cause: "The message has the reason: no host with an etcd member is reachable, the host lacks disk space or " +
				"memory for another etcd with this data, or etcd does not accept the snapshot. If the host is the " +
				"reason, the set may be good. The cluster was not changed, and nothing remains on the host.",
			Remedy: "Fix the problem of the host, and test again. If etcd does not accept the snapshot, the set cannot be " +
				"used: make another backup now and test it.",
		},
		{
			ID:      "backup-failed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A backup set could not be made.",
			Cause: "The host could not take or send the snapshot, or the directory for the file does not exist. The " +
				"message has the reason. Nothing was changed, and no files remain.",
			Remedy: "Fix the cause and repeat the command.",
		},
		{
			ID:      "backup-no-room",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "The disk of this machine lacks space for a backup set.",
			Cause: "Making a set needs twice the size of the etcd database: for the set, and for the snapshot, which is " +
				"stored next to it or, for an encrypted set, below `$SLIPWAY_HOME`. The message names the disk.",
			Remedy: "Free space there, or write the set to another disk with `--out`.",
		},
		{
			ID:      "backup-without-keys",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The keys of the cluster could not be read.",
			Cause: "The keys of the cluster's CAs could not be read on any control plane, or the etcd CA key on any etcd " +
				"host. If hosts are lost, a snapshot is useless without them, so no set is written.",
			Remedy: "Make a control plane reachable.",
		},
		{
			ID:      "backup-without-data",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The backup set has no data.",
			Cause: "It has the keys of a cluster but no snapshot, because the etcd was `external` when the set was made " +
				"before an upgrade. Nothing was changed.",
			Remedy: "Ask the owner of the etcd to restore its data. `slipway etcd snapshots` lists the sets that have data.",
		},
		{
			ID:      "backup-exists",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The file for the backup set already exists.",
			Cause:   "Backups are never overwritten.",
			Remedy:  "Name another file with `--out`.",
		},
		{
			ID:      "backup-damaged",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A backup set, or its snapshot, is incomplete or has changed since it was written.",
			Cause:   "Nothing was changed.",
			Remedy: "Use another set: `slipway etcd snapshots` lists the sets of a cluster, and `slipwayd list-backups` the sets " +
				"of the management server.",
		},
		{
			ID:      "backup-encrypted",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The backup set is encrypted, and no matching key was given.",
			Remedy:  "Use `--identity` with the file that `age-keygen` wrote.",
		},
		{
			ID:      "backup-unknown",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file is not a backup set of Slipway, or has a format that this version cannot read.",
			Cause:   "A bare etcd snapshot is not a backup set.",
			Remedy:  "Name a file that `slipway etcd snapshot` has written, or `slipwayd backup` for the management server.",
		},
		{
			ID:      "backup-other-cluster",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The backup set belongs to another cluster.",
			Cause: "Its name or its CA certificate differs. The CA certificate also differs if the cluster was recreated " +
				"under the same name or its CA was rotated. A restore would bring keys that the cluster does not trust. " +
				"Nothing was changed.",
			Remedy: "Use a set of this cluster.",
		},
		{
			ID:      "backup-unverified",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The backup set has no signature of a key that this cluster trusts.",
			Cause: "Anyone who can write the file would effectively become root on all hosts after a restore, so nothing " +
				"was changed. As a warning: `--unverified` was given, and only the snapshot of the set goes to hosts.",
			Remedy: "Use a verified set: `slipway etcd snapshots` and `slipway etcd snapshots --copies` show which sets are " +
				"verified. If another manager made the set, give its public key with `--signed-by`. Sets from before " +
				"signatures existed need `--unverified`, and so does any other set whose origin only you know.",
		},
		{
			ID:        "backup-renamed",
			IsWarning: true,
			Summary:   "The time in the file name differs from the time in the signed set.",
			Cause:     "An older set may have replaced a newer one.",
			Remedy: "Compare the time in the plan with the times of `slipway etcd snapshots`, and choose another set if you " +
				"want the newest.",
		},
		{
			ID:      "bad-signer",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value of `--signed-by` is not a public key.",
			Cause:   "A public key is `ed25519:` and 44 characters.",
			Remedy:  "Use the key in the cluster's ConfigMap `kube-system/slipway-cluster`, as `backupSigner`.",
		},
		{
			ID:      "backup-key-adopted",
			Code:    v1alpha1.ErrorConflict,
			Summary: "This manager and the hosts sign backup sets with different keys.",
			Cause: "The hosts of this cluster sign their backup sets with another key than this manager, because another " +
				"manager set them up. When the operation runs, this manager takes over that key from a control plane, " +
				"so that both use the same key. A plan alone changes nothing.",
			Remedy: "No action is needed: backup sets that this manager signed with its own key remain trusted. To use a " +
				"new key, first remove the old one here and on the hosts ([Backup](backup.md#who-is-as-good-as-root)).",
		},
		{
			ID:      "keys-of-unverified",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`--with-keys` was given without `--unverified`.",
			Cause: "The flag restores lost keys of hosts from a set without a trusted signature. These keys are always " +
				"restored from a verified set.",
			Remedy: "Omit the flag. Add `--unverified` only if you know where the set comes from " +
				"([Backup](backup.md#who-is-as-good-as-root)).",
		},
		{
			ID:      "backup-version",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The backup set is from a later version than the cluster.",
			Cause: "It is from a later minor version of etcd or Kubernetes, and the cluster cannot read all its data. " +
				"Nothing was changed. As a warning: the set is from before an upgrade, and so is the restored data.",
			Remedy: "Use an older set, from before the upgrade. After a restore with the warning, run `slipway apply` to " +
				"update the add-ons.",
		},
		{
			ID:      "backup-encryption-off",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The API servers could not read the encrypted Secrets of the backup set.",
			Cause:   "They have no encryption configuration. Nothing was changed.",
			Remedy: "Switch encryption on first (`kubernetes.encryption` in the cluster file, `slipway apply -f FILE`), " +
				"then restore: the set contains the keys. Afterwards you can switch encryption off again.",
		},
		{
			ID:      "backup-changed",
			Code:    v1alpha1.ErrorConflict,
			Summary: "An interrupted restore cannot continue.",
			Cause: "Its file now contains another backup, or an etcd host was removed since then, for which its data was " +
				"prepared. Some hosts may already have the data of the first backup, and the two must not be mixed.",
			Remedy: "Restore the original file. If a host was removed, start a new restore with `slipway etcd restore`.",
		},
		{
			ID:      "invalid-recipient",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value of `--recipient`, or an entry of `spec.etcd.backup.recipients`, is not an age public key.",
			Remedy:  "Write an age public key. Such a key begins with `age1`; `age-keygen` prints it as the public key.",
		},
	},
}

var scheduledBackups = Section{
	Title: "Automatic backups of etcd",
	Intro: "[backup.md](backup.md) has the steps.",
	Messages: []Message{
		{
			ID:      "backup-timer",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The timer for automatic snapshots is not active on the host, or was changed.",
			Cause: "Reported by `etcd snapshots --hosts`. The hosts of this cluster should take etcd snapshots " +
				"automatically (`spec.etcd.backup`).",
			Remedy: "Set it up with `slipway apply NAME`.",
		},
		{
			ID:      "backup-by-itself",
			Code:    v1alpha1.ErrorInternal,
			Summary: "An automatic snapshot of a host failed, or it succeeded but the oldest snapshot cannot be removed.",
			Cause: "Reported by `etcd snapshots --hosts`. The message has the reason. Earlier snapshots are kept, and the " +
				"host tries again automatically. Common causes:\n\n" +
				"- The oldest snapshot cannot be removed: find the cause (for example with `lsattr`) before the disk is " +
				"full.\n" +
				"- The disk lacks space for the database and 15 % more (at least 1 GiB): free disk space below " +
				"`/var/lib/slipway/backups`, or keep fewer snapshots (`spec.etcd.backup.keep`).\n" +
				"- The member has no leader or is a learner, or etcd reports damaged data (`CORRUPT`): check `slipway " +
				"etcd health NAME`.",
			Remedy: "Remove the cause. The log on the host is `journalctl -u slipway-backup`.",
		},
		{
			ID:      "backup-old",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A host has no automatic snapshot yet, or its latest one is older than twice the interval.",
			Cause: "Reported by `etcd snapshots --hosts`. Or the time of the latest one is in the future: the host's clock " +
				"was ahead, and until that time no warning would be possible. Right after automatic snapshots were " +
				"switched on, this is normal.",
			Remedy: "Otherwise, check on the host: `systemctl list-timers slipway-backup.timer`, `journalctl -u " +
				"slipway-backup`.",
		},
		{
			ID:      "backup-copy",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A host does not copy its snapshots to a target.",
			Cause: "Reported by `etcd health`, `cluster-info` and `etcd snapshots --hosts`. The target is listed at " +
				"`spec.etcd.backup.copies`, but the latest copy failed or has not finished. Or there was no copy for " +
				"twice the interval, or the time of the latest one is in the future. The message has the target, the " +
				"time and the reason. The snapshot itself is on the host and at the other targets. A target that was " +
				"just added has no copy before the next snapshot.\n\n" +
				"Common causes for a directory or machine:\n\n" +
				"- The machine is off or its disk is full.\n" +
				"- The user may not write to the directory, or the directory does not exist.\n" +
				"- The machine was reinstalled and has another host key (`hostKey`).\n" +
				"- Nothing is mounted at the directory, or it is in memory. Both are refused, because they would fill " +
				"the host's own disk or memory.\n" +
				"- A copy has not finished: the target is stalled, or the host went down. Check whether `ls` of the " +
				"directory responds there.\n\n" +
				"Common causes for a bucket:\n\n" +
				"- It does not exist or is in another `region`.\n" +
				"- The access key is unknown, or may not list, read, write and delete there.\n" +
				"- The secret key belongs to another access key.\n" +
				"- The host's clock is wrong by more than a quarter of an hour.\n" +
				"- The storage's certificate is from a CA that `caFile` does not name.",
			Remedy: "The copy is tried again with the next snapshot; to try now, run `systemctl start slipway-backup` on " +
				"the host. The log is `journalctl -u slipway-backup`.\n\n" +
				"Old copies that cannot be removed do not prevent new ones, but the target may fill up. Allow the " +
				"host's user to remove its files there, or remove them yourself.",
		},
		{
			ID:      "backup-drill",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The restore test of automatic snapshots failed or was not run.",
			Cause: "Reported by `etcd health`, `cluster-info` and `etcd snapshots --hosts`. A host tests its automatic " +
				"snapshots (`spec.etcd.backup.drillEvery`) by restoring them into a separate etcd. The latest test " +
				"failed or was interrupted, there was none for twice the interval, or its time is in the future. The " +
				"message has the time and the reason.\n\n" +
				"- Too little disk space for the restored data and 15 % more, or too little memory for another etcd, " +
				"says nothing about the snapshot. Free space, or switch the tests off with `0s`.\n" +
				"- A snapshot cannot be used if etcd does not serve it, if its checksum, revision or number of keys " +
				"differs, or if no Secret can be decrypted. The disk may be failing, or an encryption key is lost. Make " +
				"and test a backup now: `slipway etcd snapshot NAME`, `slipway etcd drill NAME`.\n" +
				"- An interrupted test means that the host went down or the service was stopped.",
			Remedy: "The test is repeated with the next snapshot; to repeat it now, run `systemctl start slipway-backup` on " +
				"the host. The log is `journalctl -u slipway-backup`.",
		},
		{
			ID:      "backup-copy-unreachable",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "A copy target cannot be listed.",
			Cause: "Reported by `etcd snapshots --copies` and `etcd snapshot --copy`. It cannot be listed from this " +
				"machine, or from the hosts of its directory, or did not respond in time. The message has the target " +
				"and the reason. The other targets are listed anyway. Hosts may still reach the target: `slipway etcd " +
				"snapshots NAME --hosts` shows the results of their copies.\n\n" +
				"If only a part of a target can be listed, `--copy TARGET` is refused, because the newest copy may be " +
				"in the other part. An example is a directory that is different on each host. If a copy is larger than " +
				"listed, fetching stops.",
			Remedy: "Name one copy: `--copy TARGET/FILE`. If fetching stopped, fetch it again, and do not trust the target " +
				"if it happens again. A copy is a plain file: you can also fetch it by other means and restore it.",
		},
		{
			ID:      "backup-not-there",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host or target has no such snapshot.",
			Cause: "Reported by `etcd snapshot`. With `--of HOST`, this host is unreachable, or has no such scheduled " +
				"snapshot. With `--copy PLACE`, the cluster has no copy target with this name, or the target does " +
				"not have the requested copy of this cluster.",
			Remedy: "List the snapshots with `slipway etcd snapshots NAME --hosts`, and the copies with `slipway etcd " +
				"snapshots NAME --copies`.",
		},
	},
}
