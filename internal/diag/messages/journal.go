package messages

import "slipway.dev/slipway/api/v1alpha1"

var journals = Section{
	Title: "Journals in an API",
	Intro: "In an API, the parts of the journal of an operation are [OperationLog](../spec/v1alpha1/operationlog.md) " +
		"objects. Their content is not guessed. To give up the journal of an operation, delete all its parts: `kubectl delete " +
		"operationlogs -l slipway.dev/operation=OPERATION`. A later resume then repeats the steps of the operation.",
	Messages: []Message{
		{
			ID:      "journal-part-damaged",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A part of the journal of an operation is damaged.",
			Cause: "The message has the name of the object. Its events do not have the digest of the object, or are not in " +
				"order, or the object was written by a later version. A part with more than 8 MiB of events is refused too.",
			Remedy: "Restore the object from a backup, or update the server.",
		},
		{
			ID:      "journal-part-foreign",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A part of a journal belongs to another operation with the same name.",
			Cause:   "The operation was deleted and created again, and its earlier journal was restored.",
			Remedy:  "Restore the operation and its parts from the same backup, or delete the parts with the other UID.",
		},
		{
			ID:      "journal-parts-conflict",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Two parts of a journal have the same range with different events, or their ranges overlap.",
			Cause:   "Parts from different times were restored, or two programs have written the journal at the same time.",
			Remedy:  "Restore all parts of the operation from one backup.",
		},
		{
			ID:      "journal-incomplete",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A part of the journal of an operation is missing.",
			Cause:   "The message has the numbers of the missing events. The object was deleted.",
			Remedy:  "Restore all parts of the operation from one backup.",
		},
		{
			ID:      "archive-unavailable",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The archive of finished operations cannot be read or written.",
			Cause: "The message has the cause: the disk or the storage is full, it does not respond, or it refuses access. Operations " +
				"on clusters continue. No record is removed until the archive has it, and lists lack the operations that are only " +
				"in the archive.",
			Remedy: "Make the archive reachable and writable, and give it enough space. After the next successful operation, Slipway " +
				"archives everything that is missing.",
		},
		{
			ID:      "archive-damaged",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A file in the archive of finished operations is damaged.",
			Cause:   "The message has the name of the file. Its content does not have the digest in its header, or is not complete.",
			Remedy: "Restore the file from a copy of the archive, or delete it to give up the record of that operation. No cluster " +
				"needs it.",
		},
	},
}
