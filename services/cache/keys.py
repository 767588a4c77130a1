"""Every Redis key of a run, in one place. Schema version 2.

All keys begin with `moera:{<run_id>}:`; the braces are a hash tag, so that a run lives in one
slot of a cluster and one script may touch all of its keys.

    schema                     string   schema version
    lineage                    hash     epoch token request_id restored groups_per_step
                                        max_staleness on_stale committed_step assigned_step
    restores                   hash     epoch -> step that lineage was restored from
    counts                     hash     the accounting identity, in training samples
    totals                     hash     groups sequence duplicates expired eval_open
    failures                   hash     failure kind name -> samples
    group:<group_id>           hash     seq n purpose eval pinned proto open committed
    sample:<group_id>/<i>      hash     state token server leases fails failed_on summary epoch step
                                        staleness failure upload
    pending                    zset     sample ids; with a partial first, then by group sequence
    pending:<epoch>.<step>     zset     the same, for groups pinned to a weight version
    outstanding                zset     training groups neither assigned nor terminal -> sequence
    leases                     zset     sample id -> expiry in ms of Redis time
    ready                      zset     group id -> sequence
    assigned:<step>            list     group ids of a batch
    eval:<eval_id>             hash     n open
    eval_groups:<eval_id>      list     group ids of an evaluation
    payload:<sample_id>        string   serialised Payload of a committed trajectory
    partial:<sample_id>        string   serialised Payload of a partial
    reasons:<sample_id>        list     last failures, newest first, at most 10
    last_failure               string   newest failure of any sample
    upload:<upload_id>         string   uploaded payload, 1 h
    request:<request_id>       list     answer to a lease request, as long as its leases
    gone:<group_id>            string   tombstone of a finished group, 1 day
    latest                     string   "epoch.step" of the latest weight version
    manifest:<epoch>.<step>    string   serialised ManifestHeader
    shards:<epoch>.<step>      hash     rank -> serialised ShardPart; 1 h until published
    digests                    hash     version -> hex target digest
    versions, anchors          list     visible versions, and the last two anchors, oldest first
    chunks_of:<epoch>.<step>   list     hex digests of a version's chunks
    chunk:<hex digest>         string   bytes of a chunk; 1 h until published
    chunk_refs                 hash     hex digest -> versions that use it
"""

SCHEMA_VERSION = "2"


def prefix(run_id: str) -> str:
    """Return what all keys of a run begin with."""
    return f"moera:{{{run_id}}}:"
