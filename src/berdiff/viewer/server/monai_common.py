"""What the routes of MONAI Label's interface share."""

import json
from typing import Any

from pydantic import ValidationError
from starlette.datastructures import FormData

from berdiff.viewer.server.context import Context
from berdiff.viewer.server.items import Item
from berdiff.viewer.server.refusal import Refused, not_found


def parsed_params(kind: type[Any], form: FormData) -> Any:
    given = form.get("params", "{}")
    try:
        content = json.loads(given if isinstance(given, str) else "{}") or {}
        return kind(**content)
    except (ValueError, TypeError, RecursionError) as error:
        detail = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "a JSON object"}
        place = ".".join(["params", *map(str, detail["loc"])])
        expected = str(detail["msg"]).removeprefix("Input should be ")
        raise Refused(400, f"{place}: expected {expected}, found something else"[:300]) from error


def shared_item(on: Context, image: str) -> Item:
    """By its id, its name or the UID of its DICOM series: never by a path."""
    shared = on.service.shared
    found = shared.get(image) or next(
        (one for one in shared.values() if image and image in (one.name, one.series)), None
    )
    if found is None:
        raise not_found("image")
    return found


def datastore_status(on: Context) -> dict[str, Any]:
    return {"total": len(on.service.shared), "completed": 0, "label_tags": {}, "train": []}
