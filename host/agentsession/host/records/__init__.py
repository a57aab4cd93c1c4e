"""What is done with stored records: delete, export and import, follow, prune, redact.

For any ``RecordStore`` of ``agentsession.protocol``; where a store has to offer more, the function says so. The stores
themselves are in ``agentsession.host``: ``SqliteRecordStore``, ``SqlRecordStore``.
"""

from agentsession.host.records._delete import delete_record
from agentsession.host.records._export import RecordLines, export_record
from agentsession.host.records._find import find_record
from agentsession.host.records._follow import RecordFollower, follow_record
from agentsession.host.records._import import ImportedRecord, import_record
from agentsession.host.records._prune import prune_records
from agentsession.host.records._redact import Redactor

__all__ = [
    "ImportedRecord",
    "RecordFollower",
    "RecordLines",
    "Redactor",
    "delete_record",
    "export_record",
    "find_record",
    "follow_record",
    "import_record",
    "prune_records",
]
