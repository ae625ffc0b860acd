"""How what the questions and rules themselves refuse is told over HTTP."""

from volsched.api.kubernetes.statuses import ApiError, store_error
from volsched.kube.problems import ManifestError
from volsched.log.events.kind_names import UnknownKindError
from volsched.questions.audit.answers import QuestionError, TokenError, UnknownError
from volsched.questions.history.moments import MomentError


def error_of(error: Exception) -> ApiError:
    """What is refused by what the questions and rules themselves say."""
    match error:
        case UnknownError() | UnknownKindError():
            return ApiError(404, str(error))
        case TokenError():
            return ApiError(400, "continue: it is not where a page ended; give what the page before has told")
        case MomentError():
            return ApiError(400, str(error).replace("--until", "until").replace("--as-of", "asOf"))
        case ManifestError():
            causes = [{"reason": "FieldValueInvalid", "message": str(it), "field": ""} for it in error.problems]
            told = "; ".join(it["message"] for it in causes[:5])
            return ApiError(422, f"manifests: {told}", details={"causes": causes[:50]})
        case QuestionError():
            return ApiError(422, str(error))
        case _:
            return store_error(error)
