package messages

import "slipway.dev/slipway/api/v1alpha1"

var serverDataDirectory = Section{
	Title: "The data directory of the management server",
	Messages: []Message{
		{
			ID:      "data-dir-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A command needs the data directory of a server, but there is none.",
			Cause:   "The path is empty or wrong, or the server has never run on this machine.",
			Remedy:  "Name the directory of the server with `--data-dir`, or start the server first.",
		},
		{
			ID:      "data-dir-foreign",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The directory has files of another program.",
			Cause: "It has no `server.json`, and a name that the server does not use. The server creates its data only in " +
				"a missing or empty directory. Nothing was changed.",
			Remedy: "Name another directory with `--data-dir`.",
		},
		{
			ID:      "data-dir-newer",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A later version of `slipwayd` has written the data directory.",
			Cause:   "Its format is newer than this program supports. Nothing was changed.",
			Remedy: "Install the later version again. To return to this version, restore a backup from before the upgrade: " +
				"`slipwayd restore --replace`.",
		},
		{
			ID:      "data-dir-damaged",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The data directory has lost a file or directory, or a file in it is damaged.",
			Cause: "A disk failed or is not mounted, or someone changed the directory. The server does not create " +
				"`server.json`, `etcd`, `keys` or `pki` again next to existing data.",
			Remedy: "If a disk is not mounted, mount it. Otherwise restore a backup with `slipwayd restore --replace`, which " +
				"keeps the damaged directory. If only `hold.json` is damaged, `slipwayd release` removes it.",
		},
		{
			ID:      "data-dir-in-use",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Another process uses the data directory.",
			Cause: "A server or a restore is running. The message has the process and, if it is a server, the address of " +
				"its API. The kernel releases the lock when the process ends, so no file has to be removed.",
			Remedy: "Stop the server, for example with `systemctl stop slipwayd`, or name another directory with `--data-dir`.",
		},
		{
			ID:      "data-dir-unsafe",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Other users could read, change or replace the data directory.",
			Cause: "The directory has the CA, the keys and all Secrets of the server. It must belong to the user that runs " +
				"the command, with mode 0700, and must not be a link. The directories above it must belong to root or to " +
				"that user. Others must not have write permission there, except with the sticky bit, as in `/tmp`. The " +
				"same rules apply to the directories in it.",
			Remedy: "Correct the owner or the mode as the hint shows. If the server runs as another user, run the command as " +
				"that user: `sudo -u USER slipwayd …`. To use another disk, name a directory on that disk, or let a " +
				"directory above the data directory be a link of root.",
		},
		{
			ID:      "data-dir-path-too-long",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The path of the data directory is too long for the sockets of etcd.",
			Cause:   "The path of a unix socket has at most 107 bytes, and the data directory contains `etcd/client.sock`.",
			Remedy:  "Name a directory with a shorter path. A link of root above the directory can shorten the path.",
		},
		{
			ID:      "data-dir-incomplete",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A restore into the data directory has not finished.",
			Cause: "The restore was stopped or failed. The directory has part of a backup, and the server does not start " +
				"with it.",
			Remedy: "Remove the directory, then restore the backup again. After `--replace`, the data from before the restore " +
				"is next to it, with a name such as `/var/lib/slipwayd/data.before-20260102T030405Z`: rename it to return to " +
				"this data. `slipwayd restore --replace` also removes the incomplete part.",
		},
		{
			ID:      "data-dir-exists",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The data directory already has the data of a server.",
			Cause:   "A restore does not overwrite data.",
			Remedy: "Use `slipwayd restore --replace`. It renames the existing directory to `PATH.before-TIME` and never " +
				"removes it.",
		},
		{
			ID:      "data-dir-full",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "The disk of the data directory is full.",
			Cause:   "The disk has no free space or no free inodes, or the quota of the user is reached.",
			Remedy: "Free disk space. Directories `PATH.before-TIME` of earlier restores and the files in `backups` may be " +
				"large.",
		},
		{
			ID:      "data-dir-unwritable",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The server cannot write to its data directory.",
			Cause:   "The user has no permission, or the file system is read-only, for example after an error of its disk.",
			Remedy:  "Run the command as the user of the server, as the hint shows, or name a directory of your user with `--data-dir`.",
		},
		{
			ID:      "data-dir-mounted",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A restore with `--replace` cannot rename the data directory, because it is a mount point.",
			Remedy: "Mount the disk at another path, and use a directory on it as the data directory. Alternatively, stop " +
				"the server, move the content into a new directory on the same disk, and restore into the empty directory.",
		},
	},
}
