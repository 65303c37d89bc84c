package messages

import "slipway.dev/slipway/api/v1alpha1"

var etcdRescue = Section{
	Title: "Rescue of etcd",
	Intro: "[rescue.md](rescue.md) has the steps.",
	Messages: []Message{
		{
			ID:      "rescue-unknown-host",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A host of `--lost` is not part of a rescue.",
			Cause: "It is not a host of the cluster, or has neither an etcd member nor a control plane, so a rescue does " +
				"not concern it.",
			Remedy: "See the names with `slipway etcd members`.",
		},
		{
			ID:      "rescue-unfinished",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A rescue of etcd has begun to move data, and no other change is possible before it is finished.",
			Cause:   "Lost hosts can be removed only after the rescue.",
			Remedy: "Run `slipway resume NAME`. If a worker has died since then: `slipway resume NAME --ignore-errors`. If " +
				"one more etcd member or control plane has died, start a new rescue and name all lost hosts: `slipway " +
				"etcd rescue NAME --lost …`.",
		},
		{
			ID:      "rescue-host-answers",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A host that was declared lost responds.",
			Cause: "The host, its etcd member or another machine at its address responds. Its data is not lost and may be " +
				"more recent. If it continued next to the rescued cluster, there would be two clusters. Nothing was " +
				"changed.",
			Remedy: "Remove it from `--lost`, or shut it down permanently first.",
		},
		{
			ID:      "rescue-host-silent",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "A host with an etcd member or a control plane is unreachable but was not declared lost.",
			Cause:   "Its data may be more recent. Nothing was changed.",
			Remedy:  "Make it reachable, or, if it is permanently lost, add it to `--lost`.",
		},
		{
			ID:      "rescue-not-needed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A rescue is not needed.",
			Cause: "Etcd works, or would work if the hosts that are not declared lost were up: more than half of its " +
				"members remain. So no data has to be discarded.",
			Remedy: "Find out why the members do not work with `slipway etcd health`, and remove lost hosts with `slipway " +
				"delete node NAME --forget`.",
		},
		{
			ID:      "rescue-from",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host of `--from` cannot be used.",
			Cause: "It is declared lost, has no etcd member, or has no usable data: no data at all, or neither a readable " +
				"log nor a readable database. The message has the reason. Nothing was changed.",
			Remedy: "Name another remaining host, or omit `--from` to use the most recent data.",
		},
		{
			ID:      "rescue-no-data",
			Code:    v1alpha1.ErrorInternal,
			Summary: "No remaining etcd member has readable data in `/var/lib/etcd`.",
			Cause:   "The message has the reason.",
			Remedy:  "Mount the data disk, or restore a backup: [backup.md](backup.md).",
		},
		{
			ID:      "rescue-several-clusters",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The remaining members have data of different etcd clusters.",
			Cause: "Their data cannot be compared. A restore or rescue creates a new etcd cluster, and a host that was " +
				"down at that time still has the earlier data. Nothing was changed.",
			Remedy: "The message has the cluster id of each member. The log of any member that was running last has the id " +
				"of the current cluster (`cluster-id`). On the hosts with another id, move `/var/lib/etcd/member` aside " +
				"and retry.\n\n" +
				"A member with a damaged log may not have a readable id, and may have the best data. If no two known " +
				"ids differ, move nothing aside, and choose the data to use with `--from HOST`.",
		},
		{
			ID:      "etcd-moved",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The data of the member chosen for a rescue have changed since the rescue was planned.",
			Cause:   "The member had contact with others, or more of its data was damaged. Nothing was changed.",
			Remedy:  "Run `slipway etcd rescue` again, which checks the data again.",
		},
	},
}
